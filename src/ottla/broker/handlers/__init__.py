"""One module per API, named as the schema names it; `router.HANDLERS` is the table of them."""
