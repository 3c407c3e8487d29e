/*
 * database_hook.h
 *		What statements about databases and the extension mean to workers.
 */
#ifndef INCLOAD_DATABASE_HOOK_H
#define INCLOAD_DATABASE_HOOK_H

/* from _PG_init */
extern void database_hook_install(void);

#endif							/* INCLOAD_DATABASE_HOOK_H */
