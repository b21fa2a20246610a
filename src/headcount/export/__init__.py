"""Export of a run to other inference engines: CTranslate2, and Hugging Face transformers."""
