"""SparkSource, which reads any Spark format (exactly once), and SparkFunctionSource.

`format` and `path` (or a table name) select the source, and `option.NAME` sets Spark's options.
Files in a directory are read as they appear, as in Spark's streams; `schema` describes them, or it
is inferred from the first files. A function receives the session and the options, and returns a
streaming DataFrame:

    def orders(spark, options):
        return spark.readStream.format("rate").load().selectExpr("value AS id")
"""

from __future__ import annotations

from typing import Any

from ottla.base.config.definition import ConfigType, Importance
from ottla.base.config.validator import NonEmpty
from ottla.base.errors import UserError
from ottla.connect.api import RetriableError
from ottla.connect.connectors.spark_formats import (
    FILE_FORMATS,
    OPTION,
    options_of,
    plain_errors,
    sentence,
)
from ottla.connect.connectors.spark_functions import function_of
from ottla.connect.definition import Definition, Settings, key
from ottla.connect.frames import FRAME, FrameSource

MAX_FILES = "100"
"""Default of option.maxFilesPerTrigger: number of files in each Spark batch."""
_STRING, _HIGH = ConfigType.STRING, Importance.HIGH


class SparkSource(FrameSource):
    definition = FRAME + Definition(
        [
            key("format", _STRING, None, "Name of the Spark format.", NonEmpty(), _HIGH),
            key("path", _STRING, "", "Path of the data, or name of the table.", None, _HIGH),
            key("schema", _STRING, "", "Schema in SQL, such as id INT, name STRING."),
        ],
        required=["format"],
        prefixes=[OPTION],
    )

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        if not settings["topic"]:
            raise ValueError("set topic to the topic to write to")
        if settings["format"] in FILE_FORMATS and not settings["path"]:
            raise ValueError("set path to the directory whose files are read")

    def frame(self, spark: Any) -> Any:
        format_, path = self.settings["format"], self.settings["path"]
        is_files = format_ in FILE_FORMATS
        options = options_of(self.settings)
        if is_files:
            options.setdefault("maxFilesPerTrigger", MAX_FILES)
        with plain_errors(format_):
            reader = spark.readStream.format(format_).options(**options)
            if self.settings["schema"]:
                reader = reader.schema(self.settings["schema"])
            elif is_files:
                reader = reader.schema(self._inferred(spark))
            return reader.load(path) if path else reader.load()

    def error_message(self, error: BaseException) -> str:
        return sentence(self.settings["format"], error)

    def _inferred(self, spark: Any) -> Any:
        """Infer the schema from the files that exist."""
        settings = self.settings
        try:
            found = (
                spark.read.format(settings["format"])
                .options(**options_of(settings))
                .load(settings["path"])
                .schema
            )
        except Exception as error:
            # Spark's AnalysisException, a class that cannot be imported without Spark.
            text = str(error)
            if "UNABLE_TO_INFER_SCHEMA" in text or "PATH_NOT_FOUND" in text:
                raise RetriableError(
                    f"{settings['path']} has no {settings['format']} files to infer the schema "
                    "from; set schema, or wait for the first file"
                ) from None
            raise
        if not found.fields:
            raise RetriableError(f"{settings['path']} has no data to infer the schema from")
        return found


class SparkFunctionSource(FrameSource):
    definition = FRAME + Definition(
        [
            key(
                "function",
                _STRING,
                None,
                "Function that returns the DataFrame, as package.module:function.",
                NonEmpty(),
                _HIGH,
            )
        ],
        required=["function"],
        prefixes=[OPTION],
    )

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._function = function_of(settings["function"])

    def frame(self, spark: Any) -> Any:
        made = self._function(spark, options_of(self.settings))
        if made is None:
            raise UserError(f"{self.settings['function']} must return a DataFrame, not None.")
        return made
