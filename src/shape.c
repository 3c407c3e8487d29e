/*
 * shape.c
 *		The shape of a load: which columns, from which expressions, into what.
 *
 * Everything that can be known to be wrong before a row is read is said here:
 * when a job is created, and again when it runs, as both sides may have changed.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "access/transam.h"
#include "catalog/pg_amproc.h"
#include "catalog/pg_class.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_type.h"
#include "parser/parse_coerce.h"
#include "access/nbtree.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"
#include "utils/typcache.h"

#include "compat.h"
#include "facts.h"
#include "names.h"
#include "query.h"
#include "shape.h"
#include "shape_deleted.h"
#include "shape_columns.h"
#include "shape_watermark.h"
#include "source.h"
#include "trouble.h"

int
shape_key_position(const Shape *shape, const char *name)
{
	for (int k = 0; k < shape->nkeys; k++)
		if (strcmp(shape->columns[shape->key[k]].name, name) == 0)
			return k;
	return -1;
}

bool
shape_loads(const Shape *shape, AttrNumber attnum)
{
	for (int i = 0; i < shape->ncolumns; i++)
		if (shape->columns[i].attnum == attnum)
			return true;
	return false;
}

/*
 * What the relation here says of a column: the type, where the other server has
 * one of its own or tells of a domain no more than the type below it; and the
 * collation, which does not travel.
 */
static void
declared_type(Oid relation, AttrNumber attnum, Oid *type, int32 *typmod, Oid *collation)
{
	Oid			declared;
	int32		declared_typmod;
	Oid			declared_collation;

	get_atttypetypmodcoll(relation, attnum, &declared, &declared_typmod, &declared_collation);
	if (!OidIsValid(*type) || (declared != *type && getBaseType(declared) == *type))
	{
		*type = declared;
		*typmod = declared_typmod;
		*collation = declared_collation;
	}
	else if (OidIsValid(*collation) && OidIsValid(declared_collation))
		*collation = declared_collation;
}

/* the collation by which the source orders an expression, as far as it matters: is it "C"? */
static Oid
order_at_source(Source *source, const char *expression)
{
	TextRows   *rows;

	rows = source->routine->ask(source, psprintf(
		"SELECT pg_catalog.pg_collation_for((SELECT %s FROM %s LIMIT 0)), pg_catalog.getdatabaseencoding()",
		expression, source->routine->from_clause(source)));
	watermark_require_encoding(rows->value[0][1]);
	return rows->value[0][0] && strcmp(rows->value[0][0], "\"C\"") == 0
		? C_COLLATION_OID : DEFAULT_COLLATION_OID;
}

void
shape_foresee(Source *source, const Job *job)
{
	char	   *watermark = shape_watermark_expression(job);

	facts_foresee(source);
	source->routine->expect(source, query_describe(shape_source_columns(source, job), watermark,
												   source->routine->from_clause(source),
												   job->options->filter), NULL, true);
}

void
shape_describe(Source *source, const Job *job, List *columns,
			   Oid *watermark_type, int32 *watermark_typmod, Oid *watermark_collation)
{
	char	   *watermark = shape_watermark_expression(job);
	int			n = list_length(columns) + (watermark ? 1 : 0);
	Oid		   *types = palloc0(sizeof(Oid) * n);
	int32	   *typmods = palloc0(sizeof(int32) * n);
	Oid		   *collations = palloc0(sizeof(Oid) * n);
	char	   *sql;
	int			i = 0;
	ListCell   *lc;
	Trouble		trouble;

	sql = query_describe(columns, watermark, source->routine->from_clause(source),
						 job->options->filter);
	trouble_begin(&trouble, psprintf("The source is asked: %s", sql),
				  psprintf("The filter, the transforms and a watermark in parentheses are SQL over the columns of %s;"
						   " see that it still has what they and its own options name.", job->source_name));
	source->routine->describe(source, sql, n, types, typmods, collations);
	trouble_end(&trouble);
	foreach(lc, columns)
	{
		LoadColumn *column = lfirst(lc);
		AttrNumber	attnum = column->is_transform ? InvalidAttrNumber
			: get_attnum(job->source, column->name);

		if (attnum != InvalidAttrNumber)
			declared_type(job->source, attnum, &types[i], &typmods[i], &collations[i]);
		column->source_type = types[i];
		column->source_typmod = typmods[i];
		column->source_collation = collations[i];
		i++;
	}
	if (watermark)
	{
		AttrNumber	attnum = get_attnum(job->source, job->watermark);

		*watermark_type = types[i];
		*watermark_typmod = typmods[i];
		*watermark_collation = collations[i];
		if (attnum != InvalidAttrNumber)
			declared_type(job->source, attnum, watermark_type, &typmods[i], watermark_collation);
		/* of a domain, what the type below it has */
		if (*watermark_typmod < 0)
			(void) getBaseTypeAndTypmod(*watermark_type, watermark_typmod);
		/* what the column here says of its order must not be believed: the source sorts */
		if (OidIsValid(*watermark_collation) && source->routine->outlives_commit)
			*watermark_collation = order_at_source(source, watermark);
		if (!OidIsValid(*watermark_type))
			ereport(ERROR,
					(errcode(ERRCODE_DATATYPE_MISMATCH),
					 errmsg("the type of watermark %s is not known here", job->watermark),
					 errdetail("It is a type of the source server's own."),
					 errhint("Cast the watermark to a built-in type.")));
	}
}

/* types whose binary form names objects of one server */
static bool
names_objects(Oid type)
{
	Oid			element = get_element_type(type);

	switch (OidIsValid(element) ? element : type)
	{
		case REGPROCOID:
		case REGPROCEDUREOID:
		case REGOPEROID:
		case REGOPERATOROID:
		case REGCLASSOID:
		case REGTYPEOID:
		case REGROLEOID:
		case REGNAMESPACEOID:
		case REGCONFIGOID:
		case REGDICTIONARYOID:
		case REGCOLLATIONOID:
		case RECORDOID:
			return true;
		default:
			return false;
	}
}

static bool
same_binary(Oid source_type, Oid target_type)
{
	HeapTuple	tuple;
	bool		result;

	/* built-in types alone have the same OID and form on every server; a domain has its type's */
	source_type = getBaseType(source_type);
	if (source_type != getBaseType(target_type) || source_type >= FirstGenbkiObjectId ||
		names_objects(source_type))
		return false;
	tuple = SearchSysCache1(TYPEOID, ObjectIdGetDatum(source_type));
	result = HeapTupleIsValid(tuple) &&
		OidIsValid(((Form_pg_type) GETSTRUCT(tuple))->typreceive) &&
		OidIsValid(((Form_pg_type) GETSTRUCT(tuple))->typsend);
	if (HeapTupleIsValid(tuple))
		ReleaseSysCache(tuple);
	return result;
}

/* which instant and which local time go together depends on a zone that nothing names */
static bool
lacks_zone(Oid from, Oid to)
{
	return (from == TIMESTAMPTZOID && (to == TIMESTAMPOID || to == DATEOID || to == TIMEOID)) ||
		(to == TIMESTAMPTZOID && (from == TIMESTAMPOID || from == DATEOID));
}

bool
shape_types_meet(Oid from, Oid to)
{
	if (!OidIsValid(from) || same_binary(from, to))
		return true;
	from = getBaseType(from);
	to = getBaseType(to);
	return !lacks_zone(from, to) && (from == to || can_coerce_type(1, &from, &to, COERCION_ASSIGNMENT));
}

/* whether values of the source's type can go into the target's column, and how */
static void
match_types(const Job *job, LoadColumn *column)
{
	Oid			from = column->source_type;
	Oid			to = getBaseType(column->type);

	column->same_binary = OidIsValid(from) && same_binary(from, column->type);
	if (!OidIsValid(from) || column->same_binary)
		return;
	from = getBaseType(from);
	if (lacks_zone(from, to))
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("column \"%s\" is %s at the source and %s in the target", column->name,
						format_type_be(from), format_type_be(to)),
				 errdetail("Which instant and which local time go together depends on a zone that nothing names."),
				 errhint("Name it in a transform: {\"transforms\": {\"%s\": \"%s AT TIME ZONE 'Europe/Berlin'\"}}.",
						 column->name, quote_identifier(column->name))));
	if (from != to && !can_coerce_type(1, &from, &to, COERCION_ASSIGNMENT))
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("column \"%s\" is %s at the source and %s in the target", column->name,
						format_type_be(from), format_type_be(to)),
				 errdetail("There is no assignment cast between the two."),
				 /* at the source, a type of one's own here is not known */
				 to >= FirstGenbkiObjectId && source_is_postgres_fdw(job->source)
				 ? errhint("Let it be cast here: {\"reader\": \"relation\", \"transforms\": {\"%s\": \"%s::%s\"}}.",
						   column->name, quote_identifier(column->name), format_type_be(to))
				 : errhint("Cast it in a transform: {\"transforms\": {\"%s\": \"%s::%s\"}}.",
						   column->name, quote_identifier(column->name), format_type_be(to))));
}

/* does equality by the type's default operator mean the same image? */
static bool
equality_is_image(Oid type, Oid collation)
{
	TypeCacheEntry *entry = lookup_type_cache(type, TYPECACHE_BTREE_OPFAMILY);
	Oid			proc;

	if (!OidIsValid(entry->btree_opf))
		return false;
	proc = get_opfamily_proc(entry->btree_opf, entry->btree_opintype, entry->btree_opintype,
							 BTEQUALIMAGE_PROC);
	return OidIsValid(proc) &&
		DatumGetBool(OidFunctionCall1Coll(proc, collation, ObjectIdGetDatum(entry->btree_opintype)));
}

/* takes over what the target says about a column; false for one that it computes itself, or has no place for */
static bool
match_target_column(const Job *job, Relation target, LoadColumn *column)
{
	TupleDesc	desc = RelationGetDescr(target);
	Form_pg_attribute att = NULL;

	for (int i = 0; i < desc->natts && att == NULL; i++)
		if (!TupleDescAttr(desc, i)->attisdropped &&
			strcmp(NameStr(TupleDescAttr(desc, i)->attname), column->name) == 0)
			att = TupleDescAttr(desc, i);
	if (att == NULL && shape_may_leave_out(job, column->name))
		return false;
	if (att == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_COLUMN),
				 errmsg("target %s has no column \"%s\"", job->target_name, column->name),
				 column->is_transform ? errdetail("It is named in the option \"transforms\".")
				 : errdetail("The column is read from source %s.", job->source_name),
				 column->is_transform ? errhint("Add it with ALTER TABLE, or take it out of the transforms.")
				 : errhint("Add it with ALTER TABLE, or leave it out: {\"exclude\": [\"%s\"]}.",
						   column->name)));
	if (att->attgenerated)
		return false;
	if (!shape_types_meet(column->source_type, att->atttypid) && !job->is_new &&
		shape_may_leave_out(job, column->name))
		return false;

	column->attnum = att->attnum;
	column->type = att->atttypid;
	column->typmod = att->atttypmod;
	column->collation = att->attcollation;
	column->is_key = name_in_list(job->key, column->name);
	if (att->attidentity == ATTRIBUTE_IDENTITY_ALWAYS)
	{
		if (!column->is_key && job->strategy != STRATEGY_APPEND)
			ereport(ERROR,
					(errcode(ERRCODE_GENERATED_ALWAYS),
					 errmsg("column \"%s\" of target %s cannot be updated", column->name, job->target_name),
					 errdetail("It is an identity column that is GENERATED ALWAYS, and not part of the key."),
					 errhint("ALTER TABLE %s ALTER COLUMN %s SET GENERATED BY DEFAULT;",
							 job->target_name, quote_identifier(column->name))));
	}
	else
		column->is_settable = !column->is_key || !equality_is_image(column->type, column->collation);
	match_types(job, column);
	return true;
}

/* target columns that nothing is loaded into must be able to do without */
static void
require_defaults(const Job *job, Relation target, List *columns)
{
	TupleDesc	desc = RelationGetDescr(target);

	for (int i = 0; i < desc->natts && !job->only_fills; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);
		bool		is_loaded = false;
		ListCell   *lc;

		foreach(lc, columns)
			if (((LoadColumn *) lfirst(lc))->attnum == att->attnum)
				is_loaded = true;
		if (!is_loaded && !att->attisdropped && att->attnotnull && !att->atthasdef &&
			!att->attidentity && !att->attgenerated)
			ereport(ERROR,
					(errcode(ERRCODE_NOT_NULL_VIOLATION),
					 errmsg("column \"%s\" of target %s would get no value", NameStr(att->attname),
							job->target_name),
					 errdetail("It is NOT NULL, has no default, and source %s has no such column.",
							   job->source_name),
					 errhint("Give it a default, or a value: {\"transforms\": {\"%s\": \"...\"}}.",
							 NameStr(att->attname))));
	}
}

int
shape_column_position(const Shape *shape, const char *name)
{
	for (int i = 0; i < shape->ncolumns; i++)
		if (strcmp(shape->columns[i].name, name) == 0)
			return i;
	return -1;
}

static void
match_key(const Job *job, Shape *shape)
{
	ListCell   *lc;

	shape->nkeys = 0;
	shape->key = palloc(sizeof(int) * Max(list_length(job->key), 1));
	shape->key_is_portable = job->key != NIL;
	foreach(lc, job->key)
	{
		char	   *name = lfirst(lc);
		int			position = shape_column_position(shape, name);
		Oid			type;

		if (get_attnum(job->target, name) == InvalidAttrNumber)
			shape_unknown_column("target", job->target_name, relation_column_names(job->target),
						   name, "key");
		if (position < 0 && get_attnum(job->source, name) != InvalidAttrNumber)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("key column \"%s\" is not loaded", name),
					 errdetail("Target %s computes it, or the options leave it out.", job->target_name),
					 errhint("Name key columns that are read from the source and stored in the target.")));
		if (position < 0)
			shape_unknown_column("source", job->source_name, relation_column_names(job->source),
						   name, "key");
		for (int i = 0; i < shape->nkeys; i++)
			if (shape->key[i] == position)
				ereport(ERROR,
						(errcode(ERRCODE_DUPLICATE_COLUMN),
						 errmsg("key column \"%s\" is named twice", name),
						 errdetail("A key is a set of columns."),
						 errhint("Name each column once.")));
		type = shape->columns[position].type;
		if (!OidIsValid(lookup_type_cache(type, TYPECACHE_EQ_OPR | TYPECACHE_LT_OPR)->eq_opr) ||
			!OidIsValid(lookup_type_cache(type, TYPECACHE_LT_OPR)->lt_opr))
			ereport(ERROR,
					(errcode(ERRCODE_UNDEFINED_FUNCTION),
					 errmsg("column \"%s\" cannot be part of a key", name),
					 errdetail("Type %s has no order, or no equality.", format_type_be(type)),
					 errhint("Choose columns that identify a row and can be compared.")));
		/* in a query there, bare operators have to mean the built-in ones, and what is staged is to be what is there */
		if (getBaseType(type) >= FirstGenbkiObjectId ||
			getBaseType(type) != getBaseType(shape->columns[position].source_type) ||
			!column_keeps_digits(&shape->columns[position]))
			shape->key_is_portable = false;
		shape->key[shape->nkeys++] = position;
	}
}

/* can one read bring a key twice? Not where the source has a unique index on it. */
static bool
key_is_unique(const SourceFacts *facts, const Shape *shape, const Job *job)
{
	for (int i = 0; i < shape->nkeys; i++)
	{
		const LoadColumn *column = &shape->columns[shape->key[i]];

		/* what differs there must not be equal here: rounded, or by another rule */
		if (column->is_transform || !column_keeps_digits(column) || !column->same_binary ||
			(OidIsValid(column->collation) && !get_collation_isdeterministic(column->collation)))
			return false;
	}
	return shape->nkeys > 0 && !facts->has_children && facts_unique_within(facts, job->key);
}

/*
 * May a batch end among rows of one watermark, after a key? Not where several of
 * them can have that key and the last is to win. And not where the order may be
 * made elsewhere, by another collation's rules than the comparison that goes on.
 */
static bool
key_cuts_ties(const Source *source, const Shape *shape, const Job *job)
{
	if (job->options->only_newer && !shape->key_is_unique)
		return false;
	if (source->routine->outlives_commit || source->is_local)
		return true;
	for (int i = 0; i < shape->nkeys; i++)
	{
		const LoadColumn *column = &shape->columns[shape->key[i]];

		if (OidIsValid(column->source_collation) && column->source_collation != C_COLLATION_OID)
			return false;
	}
	return true;
}

void
shape_build_desc(Shape *shape)
{
	bool		separate = shape->watermark && shape->watermark_position == shape->ncolumns;

	shape->desc = CreateTemplateTupleDesc(shape->ncolumns + (separate ? 1 : 0) + (shape->deleted_expression ? 1 : 0));
	shape->all_binary = true;
	for (int i = 0; i < shape->ncolumns; i++)
	{
		LoadColumn *column = &shape->columns[i];

		TupleDescInitEntry(shape->desc, i + 1, column->name, column->type, column->typmod, 0);
		TupleDescInitEntryCollation(shape->desc, i + 1, column->collation);
		shape->all_binary &= column->same_binary;
	}
	if (separate)
	{
		TupleDescInitEntry(shape->desc, shape->ncolumns + 1, shape->watermark_name,
						   shape->watermark->type, -1, 0);
		TupleDescInitEntryCollation(shape->desc, shape->ncolumns + 1, shape->watermark->collation);
	}
	if (shape->deleted_expression)
		TupleDescInitEntry(shape->desc, shape->deleted_position + 1, shape->deleted_name, BOOLOID, -1, 0);
	compat_TupleDescFinalize(shape->desc);
}

Shape *
shape_build(Source *source, const Job *job)
{
	Shape	   *shape = palloc0(sizeof(Shape));
	List	   *candidates;
	List	   *columns = NIL;
	Oid			watermark_type = InvalidOid;
	int32		watermark_typmod = -1;
	Oid			watermark_collation = InvalidOid;
	SourceFacts *facts = facts_outline(source);
	Relation	target;
	ListCell   *lc;

	shape_note_gone(source, job, facts);
	candidates = shape_source_columns(source, job);
	shape_describe(source, job, candidates, &watermark_type, &watermark_typmod, &watermark_collation);

	target = table_open(job->target, AccessShareLock);
	foreach(lc, candidates)
		if (match_target_column(job, target, lfirst(lc)))
			columns = lappend(columns, lfirst(lc));
	if (!job->reads_tombstones)
		require_defaults(job, target, columns);
	table_close(target, AccessShareLock);

	if (columns == NIL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("job \"%s\" has no column to load", job->name),
				 errdetail("Target %s computes every column that source %s has.", job->target_name, job->source_name),
				 errhint("Name a target with a column that is not generated.")));
	shape->columns = palloc(sizeof(LoadColumn) * Max(list_length(columns), 1));
	foreach(lc, columns)
		shape->columns[shape->ncolumns++] = *(LoadColumn *) lfirst(lc);
	match_key(job, shape);
	facts_add_feeds(source, facts);
	shape->source_numbers = facts_numbers(facts);
	source_note_facts(source, facts->kind, facts->is_readable);
	shape->key_is_unique = key_is_unique(facts, shape, job);
	if (!key_cuts_ties(source, shape, job))
		shape->key_is_portable = false;
	shape_add_watermark(source, job, shape, facts, watermark_type, watermark_typmod,
						watermark_collation);
	shape->of_tombstones = job->reads_tombstones;
	if (source->routine->outlives_commit)
		shape->zone = job->options->source_timezone ? job->options->source_timezone : "UTC";
	shape_add_deleted(job, shape);
	shape_build_desc(shape);
	return shape;
}
