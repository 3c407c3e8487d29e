/*
 * role.h
 *		The brackets in which incload acts as somebody else.
 */
#ifndef INCLOAD_ROLE_H
#define INCLOAD_ROLE_H

#include "postgres.h"

/* RoleBracket: what role_leave() puts back; an error puts it back as well */
typedef struct RoleBracket
{
	Oid			user;
	int			security_context;
	int			guc_nest_level;
} RoleBracket;

/* the owner of the extension, who owns and alone writes schema incload */
extern Oid	role_extension_owner(void);

/* false for a role that is gone, too */
extern bool role_can_login(Oid role);

/* act as the extension's owner, with nothing but pg_catalog in the search_path */
extern void role_enter_catalog(RoleBracket *bracket);

/*
 * Act as a job's owner, with the job's search_path and fixed formats for
 * values that travel as text. Where the caller is somebody else, the owner's
 * SQL runs security-restricted: it can leave nothing behind in the session.
 */
extern void role_enter_owner(RoleBracket *bracket, Oid owner, const char *search_path);

/* the fixed formats once more, after SQL that may have set others */
extern void role_pin_formats(void);

/* the same for a process of incload's own, from now on */
extern void role_pin_formats_for_good(void);

extern void role_leave(RoleBracket *bracket);

/* a local setting until the bracket is left */
extern void role_set(const char *name, const char *value);

/*
 * Fires what this transaction has deferred, as the caller, where the owner is
 * somebody else, and lets nothing be deferred from then on.
 */
extern void role_fire_deferred(Oid owner);

/* the database that OIDs kept in the catalog hold for: system identifier and OID */
extern char *role_database_identity(void);

#endif							/* INCLOAD_ROLE_H */
