"""The claims of EASGD on GPU and Knights Landing clusters (SC 2017)."""
