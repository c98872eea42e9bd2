"""What later plannings of an application add to its plan: topics that tasks met, schemas of committed batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from spark_kafka_sink.errors import KafkaError
from spark_kafka_sink.schemas.formats.cached_registry import CachedRegistry
from spark_kafka_sink.schemas.formats.column_schema import Registry
from spark_kafka_sink.schemas.formats.plan import EarlierSchemas, FormatPlan, SchemaUse
from spark_kafka_sink.schemas.formats.subject_schemas import SubjectSchemas
from spark_kafka_sink.schemas.registry.subjects import Side


def with_asked(plan: FormatPlan, registry: CachedRegistry) -> FormatPlan:
    """The plan with what tasks of earlier micro-batches asked for."""
    options = plan.registry
    assert options is not None
    columns = {}
    for side, column in plan.columns.items():
        new = registry.asked(column.identity, column.known)
        schemas = SubjectSchemas(column, options.side(side), registry)
        known = {each.subject: schemas.use(each).without_text() for each in new}
        columns[side] = replace(column, known={**column.known, **known}) if known else column
    return replace(plan, columns=columns)


def earlier_schemas(
    plan: FormatPlan, ids: Sequence[tuple[Side, str, int]], registry: Registry
) -> EarlierSchemas | None:
    """``ids``: column, subject and schema id of a committed batch. None if the plan has the same."""
    options = plan.registry
    uses: dict[Side, dict[str, SchemaUse]] = {}
    for side, subject, schema_id in ids:
        column = plan.columns.get(side)
        if column is None or options is None:
            continue
        known = column.known.get(subject)
        if known is not None and known.registered is not None and known.registered.id == schema_id:
            continue
        try:
            use = SubjectSchemas(column, options.side(side), registry).by_id(subject, schema_id).without_text()
        except KafkaError as error:
            return EarlierSchemas({}, str(error))
        uses.setdefault(side, {})[subject] = use
    return EarlierSchemas(uses) if uses else None
