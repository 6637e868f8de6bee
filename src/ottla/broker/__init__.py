"""The broker process: connections, request handlers and the components behind them."""
