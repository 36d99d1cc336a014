"""The claims of asynchronous layer-wise gradient descent."""
