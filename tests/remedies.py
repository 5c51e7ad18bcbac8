"""Which test carries out the remedy that a hint names, and looks at the result.

Rows are classes of errors.  The hints of the general classes (`GENERAL`) differ by place: theirs
are the modules that raise them.  Each row is in one table; `tests/tidy/test_tidy.py` fails for
a hint without one.
"""

from __future__ import annotations

from collections.abc import Mapping

GENERAL = frozenset({"ConfigError", "InvalidSettings", "SchemaError", "UnreachableError"})

_DELTA = "tests/spark/sinks/delta"
_MERGE = "tests/spark/sinks/merge"
_SINKS = "tests/spark/sinks/test_contract.py"
_COLUMNS = "tests/unit/spark_consumer/sinks"
_FILES = "tests/unit/producer/datastream"
_REPAIR = (
    f"{_FILES}/test_table_settings.py::"
    "test_a_lost_file_is_repaired_by_a_backfill_with_its_place_in_the_settings"
)
_TRANSLATION = "tests/unit/producer/translation"
_ORDERED = "tests/topic_contract.py"
_LOCATIONS = "tests/unit/spark_consumer/commands/test_locations.py"

DONE: Mapping[str, tuple[str, ...]] = {
    # ---- of the consumer
    "AmbiguousNames": (
        "tests/unit/spark_consumer/core/test_topic_schemas.py::test_columns_that_differ_in_case_only_are_refused_by_name",
    ),
    "CheckpointConflict": (
        "tests/spark/spark/test_query.py::test_the_query_starts_again_and_nothing_is_lost_or_repeated",
    ),
    "CheckpointMismatch": (
        "tests/spark/spark/audit/test_auditing.py::test_an_empty_checkpoint_goes_on_where_tables_and_manifests_end",
        "tests/unit/spark_consumer/sinks/delta/test_adoption.py::test_at_whatever_step_a_checkpoint_is_lost_the_output_goes_on",
    ),
    "program/tokens.py": (
        "tests/unit/program/test_tokens.py::test_a_source_that_fails_does_no_harm_while_the_token_is_valid",
        "tests/unit/program/test_tokens.py::test_awss_default_credentials_sign_a_request",
        "tests/unit/program/test_tokens.py::test_googles_default_credentials_give_a_token",
        "tests/unit/program/test_tokens.py::test_a_function_returns_a_token_and_its_time_of_expiry",
    ),
    "spark_consumer/sinks/tables.py": (
        f"{_MERGE}/test_mirror.py::test_what_an_owner_has_set_that_refuses_a_release_is_named_and_passes_when_it_is_gone",
    ),
    "CommitOvertaken": (
        "tests/spark/sinks/test_iceberg.py::test_a_write_that_is_overtaken_each_time_ends_with_an_error_by_name",
    ),
    "FilteredMirror": (
        f"{_MERGE}/test_mirror.py::test_a_stream_that_leaves_changes_out_has_no_mirror_unless_that_is_accepted",
    ),
    "ForeignChange": (
        f"{_DELTA}/test_adoption.py::test_changes_of_rows_by_others_stop_the_output_until_they_are_adopted",
        f"{_DELTA}/test_changelog_reader.py::test_rows_that_others_deleted_are_refused_and_after_adopt_taken_as_they_are",
        f"{_MERGE}/test_history.py::test_rows_that_others_deleted_are_refused_and_after_adopt_the_history_goes_on",
        f"{_MERGE}/test_by_key.py::test_rows_that_others_deleted_are_adopted_like_those_of_a_release",
        "tests/spark/sinks/test_iceberg.py::test_rows_by_others_are_refused_by_the_next_write_and_the_next_run",
    ),
    "RecordTooLarge": (
        "tests/integration/test_ordered_topic.py::test_a_change_that_the_topic_does_not_take_is_named_and_nothing_is_published",
    ),
    "ReleaseUnconfirmed": (
        f"{_ORDERED}::an_unanswered_commit_that_failed_is_done_again",
        f"{_ORDERED}::an_unanswered_commit_that_succeeded_is_found",
        f"{_ORDERED}::the_same_run_goes_on_after_an_error_within_a_release",
    ),
    "ReleaseVacuumed": (
        f"{_DELTA}/test_tables.py::test_deleted_files_are_named_and_what_is_kept_is_read",
    ),
    "ReleasesMissing": (f"{_ORDERED}::lost_topics_are_noticed",),
    "SegmentDamaged": (
        "tests/spark/batch/test_segments.py::test_a_segment_that_is_restored_is_released_as_it_was",
    ),
    "StreamPartitionIncomplete": (
        "tests/spark/batch/test_batch.py::test_a_transaction_that_is_lost_as_a_whole_stops_the_gate_where_its_marker_is_passed",
    ),
    "TableMissing": (f"{_SINKS}::test_a_table_that_was_deleted_is_missed_and_not_created_again",),
    "TopicRefused": (
        "tests/unit/producer/cli/test_check.py::test_topics_that_kafka_takes_for_one_are_named_before_anything_is_created",
    ),
    "TopicWriterReplaced": (f"{_ORDERED}::a_replaced_run_does_not_fence_its_successor",),
    "TransactionIncomplete": (
        "tests/spark/batch/test_batch.py::test_a_transaction_without_its_other_table_stops_the_gate_or_is_recorded",
        "tests/spark/batch/test_bad_records.py::test_a_transaction_that_lacks_a_dead_letter_ends_the_run_or_is_recorded",
    ),
    "TransactionTooLarge": (
        "tests/spark/sinks/test_decoding.py::test_a_transaction_that_no_row_can_hold_is_refused",
    ),
    "UndecodableRecord": (
        "tests/spark/batch/test_bad_records.py::test_one_that_cannot_be_decoded_ends_the_run_and_is_set_aside_by_the_setting",
    ),
    "UnknownSchema": (
        "tests/spark/batch/test_bad_records.py::test_a_topic_with_nothing_else_is_read_and_its_records_are_set_aside",
    ),
    "UnorderedChange": (
        "tests/spark/batch/test_bad_records.py::test_foreign_records_end_the_run_and_are_set_aside_with_their_batch",
    ),
    "WriterReplaced": (
        "tests/spark/library/test_query.py::test_a_second_query_is_refused_and_a_forced_one_ends_the_first_by_name",
    ),
    "spark_consumer/checkpoint/gate_files.py": (
        f"{_LOCATIONS}::test_a_checkpoint_of_another_stream_or_output_is_refused",
    ),
    "spark_consumer/commands/locations.py": (
        f"{_LOCATIONS}::test_a_folder_that_cannot_be_written_to_is_named",
        f"{_LOCATIONS}::test_an_output_of_another_query_is_refused",
        f"{_LOCATIONS}::test_what_is_audited_has_a_release",
    ),
    "program/open_lineage.py": (
        "tests/unit/program/test_open_lineage.py::test_a_configuration_that_cannot_be_used_is_refused_without_its_text",
    ),
    "spark_consumer/checkpoint/hadoop_folder.py": (
        f"{_LOCATIONS}::test_s3_without_its_jar_is_refused_with_what_to_add",
    ),
    "spark_consumer/sinks/files/datastream.py": (
        "tests/unit/spark_consumer/sinks/files/test_datastream.py::test_files_of_another_query_or_ahead_of_the_checkpoint_are_refused",
    ),
    "spark_consumer/sinks/files/parquet.py": (
        f"{_SINKS}::test_another_query_and_a_checkpoint_behind_are_refused",
    ),
    "spark_consumer/sinks/delta/catalog.py": (
        f"{_DELTA}/test_catalog.py::test_a_name_is_made_again_where_it_is_missing_and_never_replaced",
    ),
    "spark_consumer/sinks/delta/commit_log.py": (
        "tests/unit/spark_consumer/sinks/delta/test_adoption.py::test_at_whatever_step_a_checkpoint_is_lost_the_output_goes_on",
        "tests/spark/spark/audit/test_auditing.py::test_an_empty_checkpoint_goes_on_where_tables_and_manifests_end",
    ),
    "spark_consumer/sinks/merge/versions.py": (
        f"{_COLUMNS}/test_table_sinks.py::test_a_column_with_the_name_of_one_of_ours_is_refused",
        f"{_COLUMNS}/test_table_sinks.py::test_an_output_keeps_the_names_that_its_histories_were_begun_with",
    ),
    "spark_consumer/sinks/merge/by_key.py": (
        f"{_COLUMNS}/test_table_sinks.py::test_a_column_with_the_name_of_one_of_ours_is_refused",
    ),
    "spark_consumer/sinks/delta/tables.py": (
        f"{_SINKS}::test_another_query_and_a_checkpoint_behind_are_refused",
    ),
    "spark_consumer/sinks/spark_types.py": (
        f"{_SINKS}::test_a_changed_type_is_refused_by_name_and_a_new_output_begins_with_it",
    ),
    "spark_consumer/sinks/iceberg/snapshot_log.py": (
        "tests/spark/sinks/test_iceberg.py::test_a_table_that_somebody_else_made_is_refused",
    ),
    "spark_consumer/sinks/kafka/ordered_topic.py": (f"{_ORDERED}::lost_topics_are_noticed",),
    "spark_consumer/sinks/kafka/port.py": (
        "tests/unit/spark_consumer/sinks/kafka/test_ordered_topic.py::test_a_topic_with_records_of_others_is_left_for_one_of_its_own",
    ),
    "spark_consumer/sinks/manifest.py": (
        "tests/unit/spark_consumer/sinks/test_release_writer.py::test_a_restored_folder_of_manifests_is_read_as_it_was",
    ),
    # ---- of the producer
    "CommandNotWritten": (
        "tests/unit/producer/cli/test_fleet_commands.py::test_a_command_that_may_not_be_written_is_run_again",
        "tests/unit/producer/cli/test_backfill.py::test_a_request_whose_answer_was_lost_is_looked_at_and_asked_for_again",
    ),
    "DeliveryDenied": (
        "tests/integration/test_login.py::test_a_permission_that_is_lost_is_named_and_nothing_is_lost",
    ),
    "DeliveryRefused": (
        "tests/unit/producer/core/test_transaction_cycle.py::test_what_the_topic_refuses_is_published_once_its_settings_are_changed",
    ),
    "FileCutShort": (
        f"{_FILES}/test_object_reading.py::test_a_file_that_was_refused_and_is_copied_again_is_read_whole",
    ),
    "FileDamaged": (_REPAIR,),
    "EndNotReached": (
        "tests/integration/test_bounded_run.py::test_a_change_that_stops_its_stream_partition_ends_the_run_and_names_it",
    ),
    "FileDenied": (
        f"{_FILES}/test_object_query.py::test_a_file_that_may_not_be_read_stops_its_stream_partition_and_is_read_later",
    ),
    "FileNamesCollide": (
        f"{_FILES}/test_object_reading.py::test_two_files_with_one_name_in_the_position",
    ),
    "GapNotAccepted": (
        "tests/unit/producer/core/test_sole_workers.py::test_whatever_ends_it_before_the_commit_changes_nothing",
    ),
    "IncompatibleChange": (
        f"{_TRANSLATION}/test_table_registrar.py::test_what_a_subject_cannot_follow_is_undone_or_begins_under_another_prefix",
        f"{_TRANSLATION}/test_table_refresh.py::test_a_change_that_is_undone_is_followed_again",
    ),
    "IncompleteRow": (
        f"{_FILES}/test_event_records.py::test_a_change_stream_that_captures_the_whole_row_is_read_on",
    ),
    "InitialQueryChange": (
        "tests/unit/producer/core/test_stream_opening.py::test_a_stream_that_begins_after_such_a_change_is_opened",
    ),
    "LocationGone": (f"{_FILES}/test_object_query.py::test_a_location_that_comes_back_is_read_on",),
    "MissingKeyColumn": (
        _REPAIR,
        f"{_FILES}/test_object_reading.py::test_an_event_that_cannot_be_used_goes_aside_or_stops_the_stream_partition",
    ),
    "MissingSortKey": (
        _REPAIR,
        f"{_FILES}/test_object_reading.py::test_an_event_that_cannot_be_used_goes_aside_or_stops_the_stream_partition",
    ),
    "MisplacedFile": (
        f"{_FILES}/test_object_reading.py::test_a_file_outside_of_a_minutes_folder_stops",
    ),
    "MixedSources": (f"{_FILES}/test_object_reading.py::test_two_sources_in_one_object",),
    "MessageTooLarge": (
        "tests/integration/test_parking.py::test_a_row_beyond_the_limit_is_named_and_comes_out_once_it_is_raised",
    ),
    "PositionExpired": (
        "tests/integration/test_pause_and_gap.py::test_what_expired_unread_is_accepted_once_and_changes_go_on_behind_it",
    ),
    "RedriveFailed": ("tests/unit/producer/core/test_sole_workers.py::test_a_commit_that_fails",),
    "SchemaNotKept": (
        f"{_TRANSLATION}/test_table_registrar.py::test_a_registry_that_drops_properties_is_named_where_they_are_needed",
    ),
    "TooManyParkedKeys": (
        "tests/integration/test_parking.py::test_poison_changes_are_parked_with_their_keys_and_put_back_once",
    ),
    "producer/translation/change_writer.py": (
        f"{_TRANSLATION}/test_table_registrar.py::test_a_subject_of_another_program_is_left_for_another_prefix_or_deleted",
    ),
    "producer/translation/parked_changes.py": (
        f"{_TRANSLATION}/test_parked_changes.py::test_a_change_that_has_another_key_now_stays_parked_and_the_others_are_put_back",
    ),
    "producer/translation/table_registrar.py": (
        f"{_TRANSLATION}/test_table_registrar.py::test_a_later_table_that_cannot_have_a_topic_stops_only_what_brings_it",
    ),
    "schemas/change_schema.py": (
        f"{_TRANSLATION}/test_table_registrar.py::test_a_subject_of_another_program_is_left_for_another_prefix_or_deleted",
        f"{_TRANSLATION}/test_table_registrar.py::test_a_column_without_a_place_is_refused_by_its_name",
        f"{_TRANSLATION}/test_table_registrar.py::test_a_column_that_no_field_can_carry_is_left_out_by_a_new_stream",
    ),
}
"""The tests, or cases of a contract, in which the remedy is done and the result is right."""

RESET: Mapping[str, str] = dict.fromkeys(
    (
        "ChangesExpired",
        "ConflictingCopies",
        "DataTopicChanged",
        "EndedInGap",
        "MixedEpochs",
        "ProgressLost",
        "ProtocolError",
        "TokenRefused",
        "TopicsChangedError",
        "UnreadableEnvelope",
        "producer/cli/accept_gap.py",
        "producer/spanner/table_reads.py",
        "spark_consumer/commands/adopt.py",
        "spark_consumer/sinks/delta/adoption.py",
        "spark_consumer/spark/adopting.py",
    ),
    "tests/integration/test_fleet_commands.py::test_it_begins_again",
)
"""The remedy is a reset, or a new output and checkpoint: the test of a reset."""

RESTARTED: Mapping[str, str] = dict.fromkeys(
    (
        "ChangesNotConserved",
        "CountsMissing",
        "QueryInterrupted",
        "ReportFailed",
        "RunStopped",
        "producer/kafka/backfill_topic.py",
        "producer/kafka/publisher.py",
        "spark_consumer/checkpoint/whole_files.py",
        "spark_consumer/checkpoint/storage.py",
        "spark_consumer/checkpoint/store_access.py",
        "spark_consumer/sinks/iceberg/catalog.py",
        "spark_consumer/sinks/kafka/output_topic.py",
        "spark_consumer/sinks/kafka/topics.py",
        "spark_consumer/spark/audit/auditing.py",
        "spark_consumer/spark/failures.py",
        "spark_consumer/spark/session.py",
    ),
    "tests/spark/test_all_sinks_killed.py::test_killed_after_each_step_in_turn_the_batch_leaves_the_same",
)
"""The remedy is to start the program again: kills at each step do that, and compare the output."""

BY_VALUE = frozenset(
    {
        "FetchError",
        "JavaMissingError",
        "JavaUnsupportedError",
        "PathMissing",
        "PortTakenError",
        "ProducerError",
        "ProducerFencedError",
        "QueryRefused",
        "StreamChangedError",
        "StreamNotStarted",
        "local_stack/cli.py",
        "local_stack/commands/show.py",
        "local_stack/commands/up.py",
        "producer/cli/alone.py",
        "producer/cli/backfill.py",
        "producer/cli/check.py",
        "producer/cli/clients.py",
        "producer/cli/commands.py",
        "producer/cli/control.py",
        "producer/cli/discover.py",
        "producer/cli/environment.py",
        "producer/cli/operations.py",
        "producer/cli/redrive.py",
        "producer/cli/report.py",
        "producer/cli/schemas.py",
        "producer/cli/stream_settings.py",
        "producer/core/events.py",
        "producer/core/sole_workers.py",
        "producer/cli/console/change_search.py",
        "producer/cli/console/releases.py",
        "producer/datastream/file_store.py",
        "producer/description.py",
        "producer/cli/sole_runs.py",
        "producer/kafka/message_limits.py",
        "producer/kafka/service_check.py",
        "producer/kafka/topics.py",
        "producer/record_filter.py",
        "producer/spanner/transport/authorization.py",
        "producer/spanner/checks.py",
        "producer/spanner/forms.py",
        "producer/spanner/transport/endpoint.py",
        "producer/spanner/transport/service_client.py",
        "producer/translation/catalogues.py",
        "producer/translation/subjects.py",
        "schemas/topics.py",
        "spark_consumer/batch/batch.py",
        "spark_consumer/checkpoint/file_systems.py",
        "spark_consumer/classic_session.py",
        "spark_consumer/commands/status.py",
        "spark_consumer/commands/audit.py",
        "spark_consumer/commands/tail.py",
        "spark_consumer/kafka/java_options.py",
        "spark_consumer/library/builder.py",
        "spark_consumer/library/settings.py",
        "spark_consumer/library/session.py",
        "spark_consumer/notebook/release_figure.py",
        "spark_consumer/notebook/releases.py",
        "spark_consumer/sinks/files/events.py",
        "spark_consumer/sinks/delta/as_of.py",
        "spark_consumer/sinks/delta/layout.py",
        "spark_consumer/sinks/function.py",
        "spark_consumer/spark/audit/markers.py",
        "spark_consumer/spark/requirements.py",
        "spark_consumer/spark/sink_factory.py",
        "spark_consumer/spark/standby.py",
        "program/extras.py",
        "program/java.py",
        "program/kafka_clients.py",
        "program/kafka_errors.py",
        "program/registry_http.py",
        "program/settings.py",
        "program/spark_versions.py",
        "program/web_server.py",
    }
)
"""Refused before anything is written; the remedy is another value of a setting or an argument, a
right, or a program to install, with which the other tests of the same thing run."""

WITHOUT: Mapping[str, str] = {
    "Cancelled": "the stack is being stopped",
    "CommandRefused": "says which command the state permits",
    "ConditionRefused": "ends a backfill, which is not seen outside",
    "ConsumerError": "a branch",
    "DatastreamError": "a branch",
    "InvalidEvent": "to be reported",
    "InvariantViolation": "a bug, to be reported",
    "LocalStackError": "a branch",
    "NewerCheckpoint": "a newer version has to be installed",
    "PartFailedError": "shows the log of a part of the local stack",
    "QueryError": "a branch",
    "SchemaNotFound": "is reported as an error of the consumer's, or of the topic",
    "SortKeyMismatch": "to be reported",
    "SourceFileError": "a branch",
    "SourceOrderBroken": "to be reported",
    "TableChanged": "is answered by a refresh, and not seen outside",
    "UnknownReadMethod": "another source",
    "UnreadableProgress": "a newer version has to be installed, or another writer to be found",
    "WrongSchema": "the location of another stream",
    "producer/kafka/dead_letters.py": "a newer version, or another writer",
    "producer/spanner/decoding/struct_rows.py": "a form that is not supported",
    "producer/spanner/decoding/json_rows.py": "a form that is not supported",
    "producer/spanner/decoding/proto_rows.py": "a form that is not supported",
    "schemas/progress_codec.py": "a newer version",
    "schemas/progress_decoder.py": "passes a hint on",
    "producer/translation/translator.py": "passes a hint on",
}
"""Hints that name nothing which an operator could carry out in a test."""
