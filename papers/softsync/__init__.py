"""The claims of staleness-aware asynchronous SGD."""
