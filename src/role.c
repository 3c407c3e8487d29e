/*
 * role.c
 *		The brackets in which incload acts as somebody else.
 *
 * There are two. The catalog bracket writes schema incload as the extension's
 * owner. The owner bracket does a job's work as the job's owner, whoever calls
 * it: no rights are lent to the owner's SQL, and none are gained by it.
 *
 * Both leave by role_leave(). On an error the transaction's abort restores the
 * user and the settings, so that no PG_TRY is needed around them.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "access/htup_details.h"
#include "catalog/namespace.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_class.h"
#include "commands/trigger.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

#include "compat.h"
#include "role.h"

/*
 * Values that travel as text must read the same on both sides, whatever the
 * session prefers.
 */
static const char *const text_formats[][2] = {
	{"DateStyle", "ISO, YMD"},
	{"IntervalStyle", "postgres"},
	{"extra_float_digits", "3"},
	{"bytea_output", "hex"},
	{"standard_conforming_strings", "on"},
	{"array_nulls", "on"},
	{"xmloption", "content"},
};

Oid
role_extension_owner(void)
{
	Oid			schema = get_namespace_oid("incload", true);
	Oid			table = OidIsValid(schema) ? get_relname_relid("job_store", schema) : InvalidOid;
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(table));
	Oid			owner = InvalidOid;

	/* the catalogs of extensions have no cache, and each statement asks */
	if (HeapTupleIsValid(tuple))
	{
		owner = ((Form_pg_class) GETSTRUCT(tuple))->relowner;
		ReleaseSysCache(tuple);
	}
	if (!OidIsValid(owner))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("extension \"incload\" is not created in this database"),
				 errhint("Run CREATE EXTENSION incload.")));
	return owner;
}

bool
role_can_login(Oid role)
{
	HeapTuple	tuple = SearchSysCache1(AUTHOID, ObjectIdGetDatum(role));
	bool		can_login;

	if (!HeapTupleIsValid(tuple))
		return false;
	can_login = ((Form_pg_authid) GETSTRUCT(tuple))->rolcanlogin;
	ReleaseSysCache(tuple);
	return can_login;
}

void
role_set(const char *name, const char *value)
{
	(void) set_config_option(name, value,
							 superuser() ? PGC_SUSET : PGC_USERSET, PGC_S_SESSION,
							 GUC_ACTION_SAVE, true, 0, false);
}

static void
role_enter(RoleBracket *bracket, Oid role, int flags)
{
	GetUserIdAndSecContext(&bracket->user, &bracket->security_context);
	SetUserIdAndSecContext(role, bracket->security_context | flags);
	bracket->guc_nest_level = NewGUCNestLevel();
}

void
role_enter_catalog(RoleBracket *bracket)
{
	role_enter(bracket, role_extension_owner(), SECURITY_LOCAL_USERID_CHANGE);
	role_set("search_path", "pg_catalog, pg_temp");
}

void
role_enter_owner(RoleBracket *bracket, Oid owner, const char *search_path)
{
	int			flags = 0;

	if (GetUserId() != owner)
		flags = SECURITY_LOCAL_USERID_CHANGE | SECURITY_RESTRICTED_OPERATION;
	else if (GetSessionUserId() != owner)
		/* after SET ROLE, the owner's SQL could go back by RESET ROLE */
		flags = SECURITY_LOCAL_USERID_CHANGE;
	role_enter(bracket, owner, flags);
	role_set("search_path", search_path);
	role_pin_formats();
}

void
role_pin_formats(void)
{
	for (int i = 0; i < lengthof(text_formats); i++)
		role_set(text_formats[i][0], text_formats[i][1]);
}

void
role_pin_formats_for_good(void)
{
	for (int i = 0; i < lengthof(text_formats); i++)
		SetConfigOption(text_formats[i][0], text_formats[i][1], PGC_USERSET, PGC_S_OVERRIDE);
}

/*
 * A trigger deferred to COMMIT would fire after the bracket is left: before 18,
 * as whoever commits. A security-restricted operation refuses it for that
 * reason. What the caller has pending fires still as the caller.
 */
void
role_fire_deferred(Oid owner)
{
	if (GetUserId() != owner)
		AfterTriggerSetState(makeNode(ConstraintsSetStmt));
}

void
role_leave(RoleBracket *bracket)
{
	/* "false" takes back what the owner's SQL has SET, too */
	AtEOXact_GUC(false, bracket->guc_nest_level);
	SetUserIdAndSecContext(bracket->user, bracket->security_context);
}

char *
role_database_identity(void)
{
	return psprintf(UINT64_FORMAT "/%u", GetSystemIdentifier(), MyDatabaseId);
}
