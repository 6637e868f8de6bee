"""The asyncio shell: connections, request handlers and the parts that they work on."""
