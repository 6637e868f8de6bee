"""The engine `task.engine=spark`: tasks of connectors as long-lived tasks of a Spark application.

    worker = Spark's driver                                executor
    TaskThread ─► SparkRun ─► job of one task ───────────► Python process: SourceRun or SinkRun
                     ▲                                         │
                     └────── control channel: state, offsets, ─┘
                             topics, log; stop, log levels

Spark decides on which executor a task runs, gives it a process, and starts it again elsewhere when
the process or the executor is lost. Everything else is as with threads: `TaskThread` owns the state
and restarts the task after errors of the connector, and the transactional ID fences an instance
that was given up. Records do not pass through the driver.

| module | contents |
|---|---|
| `settings` | the settings of the Spark application |
| `engine` | the engine, which starts Spark |
| `application` | the Spark application and its control server |
| `run` | the driver's side of one run: its Spark job and its states |
| `control_server` | the driver's end of the control channels |
| `control_channel` | authenticated messages over TCP |
| `task_spec` | what is sent to the executor, and the context that is made of it there |
| `task_process` | the executor's side of one run |
| `outbox` | what a process has yet to report |
| `plugin_files` | packages of `plugin.path` for executors |

Tasks of connectors that use the worker's Spark session (`Connector.uses_spark_session`) run in
threads of the driver, because only the driver can submit jobs. Their data is read and written by
the executors that run those jobs.
"""
