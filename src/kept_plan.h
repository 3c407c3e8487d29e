/*
 * kept_plan.h
 *		Statements of incload's own, planned once a session.
 */
#ifndef INCLOAD_KEPT_PLAN_H
#define INCLOAD_KEPT_PLAN_H

#include "postgres.h"

/*
 * Executes a statement with text parameters, each cast where it is used; NULL
 * is SQL null. Inside SPI_connect(); the result is where SPI_execute() puts it.
 * The plan is kept under the statement's text, so let that be a constant.
 */
extern void kept_plan_execute(const char *sql, int nparams, const char *const *params);

/* the same, planned for this time: for what would be planned badly before its tables have filled */
extern void kept_plan_execute_once(const char *sql, int nparams, const char *const *params);

/* plans it for later */
extern void kept_plan_prepare(const char *sql, int nparams);

#endif							/* INCLOAD_KEPT_PLAN_H */
