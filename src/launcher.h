/*
 * launcher.h
 *		The background worker that keeps a scheduler in each database.
 */
#ifndef INCLOAD_LAUNCHER_H
#define INCLOAD_LAUNCHER_H

/* from _PG_init, where the library is preloaded */
extern void launcher_register(void);

/* does incload.databases mean this session's database? Asked in a transaction. */
extern bool launcher_wants_mine(void);

#endif							/* INCLOAD_LAUNCHER_H */
