/*
 * names.c
 *		Names of relations and columns as users write them.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_operator.h"
#include "commands/dbcommands.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/regproc.h"
#include "utils/syscache.h"
#include "utils/varlena.h"

#include "compat.h"
#include "names.h"

RangeVar *
relation_parse(const char *name)
{
	List	   *parts = NIL;
	char	   *copy = pstrdup(name);

	/* SplitIdentifierString folds and truncates as the parser does */
	if (copy[strspn(copy, " \t\r\n")] == '\0' ||
		!SplitIdentifierString(copy, '.', &parts) ||
		list_length(parts) < 1 || list_length(parts) > 3)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_NAME),
				 errmsg("invalid relation name \"%s\"", name),
				 errdetail("A relation is named as in a query: schema.name."),
				 errhint("Quote a part that is not all lower case: 'src.\"Orders\"'.")));
	if (list_length(parts) == 3 &&
		strcmp(linitial(parts), get_database_name(MyDatabaseId)) != 0)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("relation \"%s\" is in another database", name),
				 errdetail("This is database \"%s\".", get_database_name(MyDatabaseId)),
				 errhint("Make a foreign table for it with IMPORT FOREIGN SCHEMA or CREATE FOREIGN TABLE.")));
	for (int i = 0; i < list_length(parts); i++)
		lfirst(list_nth_cell(parts, i)) = makeString(pstrdup(list_nth(parts, i)));
	return makeRangeVarFromNameList(parts);
}

/* the server's own message would come without a way out */
static void
require_schema_usage(const char *schema)
{
	Oid			namespace = get_namespace_oid(schema, true);
	char	   *role = GetUserNameFromId(GetUserId(), false);

	if (OidIsValid(namespace) &&
		compat_schema_aclcheck(namespace, GetUserId(), ACL_USAGE) != ACLCHECK_OK)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for schema %s", schema),
				 errdetail("Role \"%s\" may not look up relations in it.", role),
				 errhint("GRANT USAGE ON SCHEMA %s TO %s;", quote_identifier(schema),
						 quote_identifier(role))));
}

Oid
relation_oid_or_invalid(const char *name)
{
	RangeVar   *relation = relation_parse(name);

	if (relation->schemaname)
		require_schema_usage(relation->schemaname);
	return RangeVarGetRelid(relation, NoLock, true);
}

Oid
relation_stored_oid(const char *name)
{
	RangeVar   *relation = relation_parse(name);
	Oid			namespace = get_namespace_oid(relation->schemaname, true);

	return OidIsValid(namespace) ? get_relname_relid(relation->relname, namespace) : InvalidOid;
}

Oid
relation_require_source(const char *name)
{
	Oid			relation = relation_oid_or_invalid(name);
	char		kind;

	if (!OidIsValid(relation))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("source \"%s\" does not exist", name),
				 errdetail("A source is a relation that can be read in this database."),
				 errhint("Make a foreign table for it with IMPORT FOREIGN SCHEMA or CREATE FOREIGN TABLE.")));

	kind = get_rel_relkind(relation);
	if (kind != RELKIND_RELATION && kind != RELKIND_PARTITIONED_TABLE &&
		kind != RELKIND_FOREIGN_TABLE && kind != RELKIND_VIEW && kind != RELKIND_MATVIEW)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("\"%s\" cannot be a source", name),
				 errdetail("It is an index, a sequence or a composite type."),
				 errhint("Name a table, a view, a materialized view or a foreign table.")));

	/* rights on some columns only are seen when the query is planned */
	if (pg_class_aclcheck(relation, GetUserId(), ACL_SELECT) != ACLCHECK_OK &&
		pg_attribute_aclcheck_all(relation, GetUserId(), ACL_SELECT, ACLMASK_ANY) != ACLCHECK_OK)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for source %s", relation_qualified_name(relation)),
				 errdetail("Role \"%s\" may not SELECT from it.", GetUserNameFromId(GetUserId(), false)),
				 errhint("GRANT SELECT ON %s TO %s;", relation_qualified_name(relation),
						 quote_identifier(GetUserNameFromId(GetUserId(), false)))));
	return relation;
}

char *
relation_qualified_name(Oid relation)
{
	if (get_rel_name(relation) == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("relation with OID %u does not exist", relation),
				 errdetail("It was dropped while it was used."),
				 errhint("Run the job again: it says what is missing.")));
	return quote_qualified_identifier(get_namespace_name(get_rel_namespace(relation)),
									  get_rel_name(relation));
}

char *
operator_qualified_name(Oid operator)
{
	HeapTuple	tuple = SearchSysCache1(OPEROID, ObjectIdGetDatum(operator));
	Form_pg_operator form;
	char	   *text;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for operator %u", operator);
	form = (Form_pg_operator) GETSTRUCT(tuple);
	text = psprintf("OPERATOR(%s.%s)", quote_identifier(get_namespace_name(form->oprnamespace)),
					NameStr(form->oprname));
	ReleaseSysCache(tuple);
	return text;
}

const char *
nearest_name(List *names, const char *wanted)
{
	const char *nearest = NULL;
	int			best = INT_MAX;
	ListCell   *lc;

	if (strlen(wanted) > 200)
		return NULL;
	foreach(lc, names)
	{
		const char *name = lfirst(lc);
		int			distance;

		if (strlen(name) > 200)
			continue;
		distance = varstr_levenshtein_less_equal(name, strlen(name), wanted, strlen(wanted),
												 1, 1, 1, 3, true);
		if (distance <= 3 && distance < best && distance < strlen(wanted))
		{
			best = distance;
			nearest = name;
		}
	}
	return nearest;
}

bool
same_text(const char *a, const char *b)
{
	return a == b || (a && b && strcmp(a, b) == 0);
}

bool
name_in_list(List *names, const char *name)
{
	ListCell   *lc;

	foreach(lc, names)
		if (strcmp(lfirst(lc), name) == 0)
			return true;
	return false;
}

bool
same_names(List *a, List *b)
{
	ListCell   *la;
	ListCell   *lb;

	if (list_length(a) != list_length(b))
		return false;
	forboth(la, a, lb, b)
		if (strcmp(lfirst(la), lfirst(lb)) != 0)
			return false;
	return true;
}

char *
quote_array_element(const char *text)
{
	StringInfoData buf;

	initStringInfo(&buf);
	appendStringInfoChar(&buf, '"');
	for (; *text; text++)
	{
		if (*text == '"' || *text == '\\')
			appendStringInfoChar(&buf, '\\');
		appendStringInfoChar(&buf, *text);
	}
	appendStringInfoChar(&buf, '"');
	return buf.data;
}
