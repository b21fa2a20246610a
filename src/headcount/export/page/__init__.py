"""The page: one HTML file with the weights, the tokenizer and the forward pass in JavaScript."""
