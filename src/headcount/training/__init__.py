"""Training: loss, schedule, the LightningModule, weight averaging, checkpoints, progress."""
