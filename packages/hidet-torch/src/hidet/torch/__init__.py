"""hidet's PyTorch front-end: `torch.compile(model, backend="hidet")`."""
