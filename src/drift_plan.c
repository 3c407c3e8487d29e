/*
 * drift_plan.c
 *		How a source's columns differ from those here, and what would mend it.
 *
 * Two differences make one: what the server that holds the source says is
 * compared with the foreign table, and both with the target. Of a source that is here,
 * or of another wrapper, there is the second alone. A type counts as another one
 * only where values of it may not fit: a target may well be wider.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/transam.h"
#include "catalog/namespace.h"
#include "catalog/pg_attribute.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_type.h"
#include "parser/parse_type.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

#include "compat.h"
#include "drift_plan.h"
#include "names.h"
#include "narrowing.h"
#include "shape.h"
#include "shape_columns.h"

/* Comparison: what the differences are looked for in */
typedef struct Comparison
{
	Source	   *source;
	const Job  *job;
	bool		has_foreign;	/* the server's columns are known, and the foreign table's are others */
	List	   *drifts;
} Comparison;

/* Declared: what a relation here says of a column */
typedef struct Declared
{
	bool		exists;
	bool		is_generated;
	Oid			type;
	int32		typmod;
	Oid			collation;
} Declared;

static Declared
declared(Oid relation, const char *column)
{
	Declared	found = {0};
	HeapTuple	tuple = SearchSysCacheAttName(relation, column);

	if (HeapTupleIsValid(tuple))
	{
		Form_pg_attribute att = (Form_pg_attribute) GETSTRUCT(tuple);

		found.exists = true;
		found.is_generated = att->attgenerated != '\0';
		found.type = att->atttypid;
		found.typmod = att->atttypmod;
		found.collation = att->attcollation;
		ReleaseSysCache(tuple);
	}
	return found;
}

Oid
drift_type_here(const Source *source, const SourceColumn *column, int32 *typmod)
{
	Oid			type = InvalidOid;

	*typmod = column->typmod;
	if (!source->is_postgres || !source->routine->outlives_commit)
		return column->type;
	/* of an own type, only the name means the same there and here */
	if (column->type < FirstGenbkiObjectId)
		return SearchSysCacheExists1(TYPEOID, ObjectIdGetDatum(column->type)) ? column->type : InvalidOid;
	compat_parse_type(column->type_name, &type, typmod);
	return type;
}

/* the collation here; false if it is not known */
static bool
collation_here(const Comparison *plan, const SourceColumn *column, Oid *collation)
{
	TextRows   *rows;

	*collation = column->collation;
	if (!plan->has_foreign || column->collation == InvalidOid || column->collation == DEFAULT_COLLATION_OID ||
		column->collation == C_COLLATION_OID)
		return true;
	rows = source_ask_catalog(plan->source, psprintf(
		"SELECT n.nspname, c.collname FROM pg_catalog.pg_collation c"
		" JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) c.collnamespace"
		" WHERE c.oid OPERATOR(pg_catalog.=) %u", column->collation));
	if (rows->nrows > 0)
		*collation = get_collation_oid(list_make2(makeString(rows->value[0][0]), makeString(rows->value[0][1])), true);
	return rows->nrows > 0 && OidIsValid(*collation);
}

/* with its schema, wherever the SQL is run */
static char *
collation_name(Oid collation)
{
	HeapTuple	tuple = SearchSysCache1(COLLOID, ObjectIdGetDatum(collation));
	Form_pg_collation form;
	char	   *name;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for collation %u", collation);
	form = (Form_pg_collation) GETSTRUCT(tuple);
	name = quote_qualified_identifier(get_namespace_name(form->collnamespace), NameStr(form->collname));
	ReleaseSysCache(tuple);
	return name;
}

/* the type as ALTER TABLE takes it */
static char *
type_clause(Oid type, int32 typmod, Oid collation)
{
	char	   *clause = format_type_extended(type, typmod, FORMAT_TYPE_TYPEMOD_GIVEN | FORMAT_TYPE_FORCE_QUALIFY);

	if (OidIsValid(collation) && collation != get_typcollation(type))
		clause = psprintf("%s COLLATE %s", clause, collation_name(collation));
	return clause;
}

static Drift *
add_drift(Comparison *plan, DriftKind kind, const char *column, char *message)
{
	Drift	   *drift = palloc0(sizeof(Drift));

	drift->kind = kind;
	drift->column = pstrdup(column);
	drift->message = message;
	plan->drifts = lappend(plan->drifts, drift);
	return drift;
}

static void
add_sql(Drift *drift, char *sql)
{
	drift->sql = lappend(drift->sql, sql);
}

static char *
add_column(const char *kind, const char *relation, const char *column, const char *type)
{
	return psprintf("ALTER %s %s ADD COLUMN %s %s", kind, relation, quote_identifier(column), type);
}

static char *
alter_type(const char *kind, const char *relation, const char *column, Oid type, int32 typmod, Oid collation)
{
	/* a collation stays as it is, if the new type has any */
	if (!OidIsValid(get_typcollation(type)))
		collation = InvalidOid;
	return psprintf("ALTER %s %s ALTER COLUMN %s TYPE %s", kind, relation, quote_identifier(column),
					type_clause(type, typmod, collation));
}

/* what the target has for a column of that type; the difference gets what is to be done, or what is in the way */
static void
compare_target(Comparison *plan, Drift *drift, Declared target, Oid type, int32 typmod)
{
	char	   *loss;

	if (!shape_types_meet(type, target.type))
	{
		drift->obstacle = psprintf("the target has it as %s, and there is no assignment cast between the two",
								   format_type_with_typemod(target.type, target.typmod));
		return;
	}
	loss = type_narrowing(type, typmod, target.type, target.typmod, !plan->source->routine->outlives_commit);
	if (loss == NULL)
		return;
	if (type_widens(target.type, target.typmod, type, typmod))
		add_sql(drift, alter_type("TABLE", plan->job->target_name, drift->column, type, typmod, target.collation));
	else
		drift->obstacle = psprintf("the target has it as %s: %s",
								   format_type_with_typemod(target.type, target.typmod), loss);
}

/* a column that the server or the relation here has, and that is not loaded */
static void
plan_new(Comparison *plan, const SourceColumn *column)
{
	const Job  *job = plan->job;
	const char *name = column->name ? column->name : column->remote_name;
	Declared	target = declared(job->target, name);
	int32		typmod;
	Oid			type = drift_type_here(plan->source, column, &typmod);
	Oid			collation;
	Drift	   *drift;

	/* the foreign table may say what the server's own type is here */
	if (!OidIsValid(type) && column->name)
	{
		Declared	here = declared(job->source, name);

		type = here.type;
		typmod = here.typmod;
	}
	drift = add_drift(plan, DRIFT_NEW, name,
					  psprintf("source %s has a column \"%s\" of type %s that %s has not", job->source_name, name,
							   OidIsValid(type) ? format_type_with_typemod(type, typmod) : column->type_name,
							   column->name ? psprintf("target %s", job->target_name) : "the foreign table"));
	if (!OidIsValid(type))
	{
		drift->obstacle = psprintf("there is no type %s here", column->type_name);
		return;
	}
	if (!collation_here(plan, column, &collation))
	{
		drift->obstacle = pstrdup("its collation is not known here");
		return;
	}
	if (column->name == NULL && declared(job->source, name).exists)
		drift->obstacle = pstrdup("the foreign table has another column of that name");
	else if (target.is_generated)
		drift->obstacle = pstrdup("the target computes a column of that name");
	if (drift->obstacle)
		return;
	if (column->name == NULL)
		add_sql(drift, add_column("FOREIGN TABLE", job->source_name, name, type_clause(type, typmod, collation)));
	if (target.exists)
		compare_target(plan, drift, target, type, typmod);
	else
		add_sql(drift, add_column("TABLE", job->target_name, name, type_clause(type, typmod, collation)));
}

/* a column that both sides have: do its values fit? */
static void
plan_known(Comparison *plan, const SourceColumn *column, Declared target)
{
	const Job  *job = plan->job;
	Declared	here = declared(job->source, column->name);
	Drift		trial = {.kind = DRIFT_RETYPED, .column = column->name};
	int32		typmod;
	Oid			type = drift_type_here(plan->source, column, &typmod);

	/* of a type that is not known, the foreign table says what it is */
	if (!OidIsValid(type))
		return;
	if (plan->has_foreign && type_narrowing(type, typmod, here.type, here.typmod, false) != NULL &&
		type_widens(here.type, here.typmod, type, typmod))
		add_sql(&trial, alter_type("FOREIGN TABLE", job->source_name, column->name, type, typmod, here.collation));
	if (!target.is_generated)
		compare_target(plan, &trial, target, type, typmod);
	if (trial.sql != NIL || trial.obstacle)
	{
		Drift	   *drift = add_drift(plan, DRIFT_RETYPED, column->name,
									  psprintf("column \"%s\" of source %s is of type %s", column->name,
											   job->source_name, format_type_with_typemod(type, typmod)));

		drift->sql = trial.sql;
		drift->obstacle = trial.obstacle;
	}
}

static bool
is_transformed(const Job *job, const char *name)
{
	ListCell   *lc;

	foreach(lc, job->options->transforms)
		if (strcmp(((Transform *) lfirst(lc))->column, name) == 0)
			return true;
	return false;
}

List *
drift_differences(Source *source, const Job *job, const SourceFacts *facts)
{
	Comparison plan = {.source = source, .job = job, .has_foreign = source->routine->outlives_commit};
	ListCell   *lc;

	foreach(lc, facts->all)
	{
		SourceColumn *column = lfirst(lc);
		const char *name = column->name ? column->name : column->remote_name;
		Declared	target;

		if (!shape_wants(job, name) || is_transformed(job, name))
			continue;
		target = declared(job->target, name);
		if (column->name == NULL || !target.exists)
			plan_new(&plan, column);
		else
			plan_known(&plan, column, target);
	}
	foreach(lc, facts->gone)
	{
		const char *name = ((SourceColumn *) lfirst(lc))->name;
		Drift	   *drift;

		if (!shape_wants(job, name) || is_transformed(job, name))
			continue;
		drift = add_drift(&plan, DRIFT_GONE, name,
						  psprintf("source %s no longer has column \"%s\", which the foreign table has", job->source_name, name));
		drift->obstacle = pstrdup("a column is never dropped by a run; what the target has in it stays");
	}
	return plan.drifts;
}

Drift *
drift_find(List *drifts, const char *column)
{
	ListCell   *lc;

	foreach(lc, drifts)
		if (strcmp(((Drift *) lfirst(lc))->column, column) == 0)
			return lfirst(lc);
	return NULL;
}
