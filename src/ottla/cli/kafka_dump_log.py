"""`kafka-dump-log`: print the contents of log files in the format of Apache Kafka's tool."""

from __future__ import annotations

from typing import NoReturn

import click

from ottla.cli.tool import Tool, run_tool

STRING_DECODER = "org.apache.kafka.tools.api.StringDecoder"


EXAMPLES = """
kafka-dump-log --files orders-0/00000000000000000000.log --print-data-log
kafka-dump-log --files orders-0/00000000000000000000.index --verify-index-only
kafka-dump-log --files __consumer_offsets-7/00000000000000000000.log --offsets-decoder
"""


@click.command(cls=Tool, examples=EXAMPLES)
@click.option(
    "--files",
    required=True,
    metavar="FILE1,FILE2,…",
    help="Files to dump: .log, .index, .timeindex, .txnindex, .snapshot and .checkpoint.",
)
@click.option("--deep-iteration", is_flag=True, help="Print each record in addition to its batch.")
@click.option(
    "--print-data-log", is_flag=True, help="Print the keys and values of records as well."
)
@click.option("--verify-index-only", is_flag=True, help="Verify indexes without printing them.")
@click.option(
    "--index-sanity-check",
    is_flag=True,
    help="Run only the sanity check that a broker runs on an index when it starts.",
)
@click.option(
    "--max-bytes", type=click.IntRange(min=0), help="Number of bytes to read from each .log file."
)
@click.option(
    "--max-message-size",
    type=click.IntRange(min=0),
    hidden=True,
    help="Accepted and ignored: batches of any size are read.",
)
@click.option("--offsets-decoder", is_flag=True, help="Decode the records of __consumer_offsets.")
@click.option(
    "--transaction-log-decoder", is_flag=True, help="Decode the records of __transaction_state."
)
@click.option(
    "--cluster-metadata-decoder", is_flag=True, help="Decode the records of __cluster_metadata."
)
@click.option(
    "--share-group-state-decoder", is_flag=True, help="Decode the records of __share_group_state."
)
@click.option("--remote-log-metadata-decoder", is_flag=True, hidden=True)
@click.option(
    "--key-decoder-class",
    is_flag=False,
    flag_value=STRING_DECODER,
    metavar="[CLASS]",
    help="Decoder of keys: Kafka's StringDecoder (the default), IntegerDecoder, LongDecoder or "
    "DefaultDecoder.",
)
@click.option(
    "--value-decoder-class",
    is_flag=False,
    flag_value=STRING_DECODER,
    metavar="[CLASS]",
    help="Decoder of values, with the same choices as --key-decoder-class.",
)
@click.option(
    "--skip-record-metadata",
    is_flag=True,
    help="Print only the keys and values of records, and skip control records.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
def kafka_dump_log(
    files: str,
    deep_iteration: bool,
    print_data_log: bool,
    verify_index_only: bool,
    index_sanity_check: bool,
    max_bytes: int | None,
    max_message_size: int | None,
    offsets_decoder: bool,
    transaction_log_decoder: bool,
    cluster_metadata_decoder: bool,
    share_group_state_decoder: bool,
    remote_log_metadata_decoder: bool,
    key_decoder_class: str | None,
    value_decoder_class: str | None,
    skip_record_metadata: bool,
    as_json: bool,
) -> int:
    """Print log segments and verify indexes.

    The tool only reads, so it can run while a broker uses the files. It reports problems with a
    file on standard error.
    """
    from ottla.cli.dump_log import Options, Printer, dump_files, find_parser

    decoders = {
        "offsets": offsets_decoder,
        "transaction-log": transaction_log_decoder,
        "cluster-metadata": cluster_metadata_decoder,
        "share-group-state": share_group_state_decoder,
        "remote-log-metadata": remote_log_metadata_decoder,
    }
    parser = find_parser(
        [name for name, is_wanted in decoders.items() if is_wanted],
        key_decoder_class,
        value_decoder_class,
        print_data_log=print_data_log,
    )
    options = Options(
        deep=deep_iteration or parser is not None,
        parser=parser,
        verify_only=verify_index_only,
        sanity_only=index_sanity_check,
        max_bytes=max_bytes,
    )
    printer = Printer(as_json=as_json, skip_metadata=skip_record_metadata)
    return dump_files([name.strip() for name in files.split(",")], options, printer)


def main() -> NoReturn:
    run_tool("kafka-dump-log", kafka_dump_log)
