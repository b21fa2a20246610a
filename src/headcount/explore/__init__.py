"""A page that runs the model: one HTML file with the weights, the tokenizer and the forward pass in JavaScript."""
