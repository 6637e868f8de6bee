"""The request handlers: one module per API, named like the API; `router.HANDLERS` lists them."""
