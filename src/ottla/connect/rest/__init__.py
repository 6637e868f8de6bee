"""Kafka Connect's REST API.

| path | methods |
|---|---|
| / | GET |
| /health | GET |
| /connectors | GET (`expand=status`, `expand=info`), POST |
| /connectors/NAME | GET, DELETE |
| /connectors/NAME/config | GET, PUT, PATCH |
| /connectors/NAME/status, /tasks, /tasks/N/status, /tasks-config, /topics | GET |
| /connectors/NAME/restart, /tasks/N/restart | POST |
| /connectors/NAME/pause, /resume, /stop, /topics/reset | PUT |
| /connectors/NAME/offsets | GET, PATCH, DELETE |
| /connector-plugins, /connector-plugins/CLASS/config | GET |
| /connector-plugins/CLASS/config/validate | PUT |
| /admin/loggers | GET |
| /admin/loggers/NAME | GET, PUT (`scope=worker`, `scope=cluster`) |

Errors are {"error_code": …, "message": …} with Kafka's codes. `router` maps method, path, query and
body to the endpoints in `connectors`, `plugins` and `worker`, and passes requests to the group's
leader with `forward`. `server` has the sockets.
"""
