/*
 * compat.h
 *		The only place that asks for the server's version.
 *
 * PostgreSQL 15 is the oldest supported.
 */
#ifndef INCLOAD_COMPAT_H
#define INCLOAD_COMPAT_H

#include "postgres.h"

#include <limits.h>

#include "catalog/pg_foreign_server.h"
#include "catalog/pg_namespace.h"
#include "executor/executor.h"
#include "utils/acl.h"

#if PG_VERSION_NUM < 150000
#error incload needs PostgreSQL 15 or newer
#endif

#if PG_VERSION_NUM >= 160000
#include "varatt.h"
#endif

/* 18 dropped the argument that promises a single call */
#if PG_VERSION_NUM >= 180000
#define compat_ExecutorRun(qd, dir, n) ExecutorRun(qd, dir, n)
#else
#define compat_ExecutorRun(qd, dir, n) ExecutorRun(qd, dir, n, false)
#endif

/* 18 can leave room in front of the tuple */
#if PG_VERSION_NUM >= 180000
#define compat_minimal_tuple(tuple) minimal_tuple_from_heap_tuple(tuple, 0)
#else
#define compat_minimal_tuple(tuple) minimal_tuple_from_heap_tuple(tuple)
#endif

/* 17 has a resource owner take care of sets of things to wait for; before, whoever makes one does */
#if PG_VERSION_NUM >= 170000
#define compat_CreateWaitEventSet(n) CreateWaitEventSet(CurrentResourceOwner, n)
#else
#define compat_CreateWaitEventSet(n) CreateWaitEventSet(CurrentMemoryContext, n)
#endif

/* 16 has one function for the rights on every kind of object */
#if PG_VERSION_NUM >= 160000
#define compat_schema_aclcheck(schema, role, mode) \
	object_aclcheck(NamespaceRelationId, schema, role, mode)
#else
#define compat_schema_aclcheck(schema, role, mode) pg_namespace_aclcheck(schema, role, mode)
#endif

/* 19 wants to be told when a row's description is complete, before it takes a row apart */
#if PG_VERSION_NUM >= 190000
#define compat_TupleDescFinalize(desc) TupleDescFinalize(desc)
#else
#define compat_TupleDescFinalize(desc) ((void) 0)
#endif

/* 19 asks for the flags of a slot, and tells extensions how EXPLAIN is asked for */
#if PG_VERSION_NUM >= 190000
#define compat_MakeTupleTableSlot(desc, ops) MakeTupleTableSlot(desc, ops, 0)
#define compat_pg_plan_query(query, sql, options) pg_plan_query(query, sql, options, NULL, NULL)
#else
#define compat_MakeTupleTableSlot(desc, ops) MakeTupleTableSlot(desc, ops)
#define compat_pg_plan_query(query, sql, options) pg_plan_query(query, sql, options, NULL)
#endif

#if PG_VERSION_NUM >= 160000
#define compat_server_aclcheck(server, role, mode) \
	object_aclcheck(ForeignServerRelationId, server, role, mode)
#else
#define compat_server_aclcheck(server, role, mode) pg_foreign_server_aclcheck(server, role, mode)
#endif

#if PG_VERSION_NUM >= 160000
#define compat_table_ownercheck(table, role) object_ownercheck(RelationRelationId, table, role)
#else
#define compat_table_ownercheck(table, role) pg_class_ownercheck(table, role)
#endif

#if PG_VERSION_NUM >= 160000
#define compat_database_ownercheck(database, role) object_ownercheck(DatabaseRelationId, database, role)
#else
#define compat_database_ownercheck(database, role) pg_database_ownercheck(database, role)
#endif

#if PG_VERSION_NUM >= 160000
#define compat_extension_ownercheck(extension, role) object_ownercheck(ExtensionRelationId, extension, role)
#else
#define compat_extension_ownercheck(extension, role) pg_extension_ownercheck(extension, role)
#endif

#if PG_VERSION_NUM >= 160000
#define compat_database_aclcheck(database, role, mode) \
	object_aclcheck(DatabaseRelationId, database, role, mode)
#else
#define compat_database_aclcheck(database, role, mode) pg_database_aclcheck(database, role, mode)
#endif

/* 16 keeps the rights that a statement needs beside its range table, and not in it */
#if PG_VERSION_NUM >= 160000
#define compat_item_perms(item) ((item)->p_perminfo)
#define compat_check_perms(pstate, item) \
	ExecCheckPermissions((pstate)->p_rtable, list_make1((item)->p_perminfo), true)
#else
#define compat_item_perms(item) ((item)->p_rte)
#define compat_check_perms(pstate, item) ExecCheckRTPerms((pstate)->p_rtable, true)
#endif

/* the range table of an executor's state: 16 wants the rights, too, and 18 which of it is not pruned */
#if PG_VERSION_NUM >= 180000
#define compat_init_range_table(estate, pstate, item) \
	ExecInitRangeTable(estate, (pstate)->p_rtable, list_make1((item)->p_perminfo), bms_make_singleton(1))
#elif PG_VERSION_NUM >= 160000
#define compat_init_range_table(estate, pstate, item) \
	ExecInitRangeTable(estate, (pstate)->p_rtable, list_make1((item)->p_perminfo))
#else
#define compat_init_range_table(estate, pstate, item) ExecInitRangeTable(estate, (pstate)->p_rtable)
#endif

/* 19 moved the making of a new heap, and can leave the indexes to the caller */
#if PG_VERSION_NUM >= 190000
#include "commands/repack.h"
#define compat_finish_heap_swap(table, heap, xid, multi, persistence) \
	finish_heap_swap(table, heap, false, false, true, true, true, xid, multi, persistence)
#else
#include "commands/cluster.h"
#define compat_finish_heap_swap(table, heap, xid, multi, persistence) \
	finish_heap_swap(table, heap, false, false, true, true, xid, multi, persistence)
#endif

/* 19 takes flags in another order; before, 16 had begun to tell the indexes that sum rows up apart */
#if PG_VERSION_NUM >= 190000
#define compat_ExecInsertIndexTuples(result, slot, estate) ExecInsertIndexTuples(result, estate, 0, slot, NIL, NULL)
#elif PG_VERSION_NUM >= 160000
#define compat_ExecInsertIndexTuples(result, slot, estate) \
	ExecInsertIndexTuples(result, slot, estate, false, false, NULL, NIL, false)
#else
#define compat_ExecInsertIndexTuples(result, slot, estate) \
	ExecInsertIndexTuples(result, slot, estate, false, false, NULL, NIL)
#endif

/* 18 counts what an index scan does, 19 takes flags */
#if PG_VERSION_NUM >= 190000
#define compat_index_beginscan(table, index, snapshot, nkeys) \
	index_beginscan(table, index, snapshot, NULL, nkeys, 0, 0)
#elif PG_VERSION_NUM >= 180000
#define compat_index_beginscan(table, index, snapshot, nkeys) index_beginscan(table, index, snapshot, NULL, nkeys, 0)
#else
#define compat_index_beginscan(table, index, snapshot, nkeys) index_beginscan(table, index, snapshot, nkeys, 0)
#endif

/* 16 has such maps for children of all kinds, and makes one when it is asked for */
#if PG_VERSION_NUM >= 160000
#define compat_root_to_partition_map(result, estate) ExecGetRootToChildMap(result, estate)
#else
#define compat_root_to_partition_map(result, estate) ((result)->ri_RootToPartitionMap)
#endif

/* 16 split "may act as" from "is a member of" */
#if PG_VERSION_NUM >= 160000
#define compat_can_set_role(member, role) member_can_set_role(member, role)
#else
#define compat_can_set_role(member, role) is_member_of_role(member, role)
#endif

/* from 18 a deferred trigger fires as the role that queued it */
#define COMPAT_DEFERRED_TRIGGERS_KEEP_ROLE (PG_VERSION_NUM >= 180000)

/* 19 names a tranche of locks when it is made; before, each process that uses it does */
#if PG_VERSION_NUM >= 190000
#define compat_new_tranche(name) LWLockNewTrancheId(name)
#define compat_register_tranche(tranche, name) ((void) 0)
#else
#define compat_new_tranche(name) LWLockNewTrancheId()
#define compat_register_tranche(tranche, name) LWLockRegisterTranche(tranche, name)
#endif

/* before 17 a worker can be nobody who may not log in */
#if PG_VERSION_NUM >= 170000
#define COMPAT_WORKER_NEEDS_LOGIN false
#define COMPAT_WORKER_FLAGS BGWORKER_BYPASS_ROLELOGINCHECK
#else
#define COMPAT_WORKER_NEEDS_LOGIN true
#define COMPAT_WORKER_FLAGS 0
#endif

/* waits have names of their own from 17 */
#if PG_VERSION_NUM >= 170000
#include "utils/wait_event.h"
#define compat_wait_event(name) WaitEventExtensionNew(name)
#else
#include "utils/wait_event.h"
#define compat_wait_event(name) PG_WAIT_EXTENSION
#endif

/* a transaction is bounded from 17 on, in a background worker, too */
#define COMPAT_HAS_TRANSACTION_TIMEOUT (PG_VERSION_NUM >= 170000)

/* intervals can be infinite from 17 on */
#if PG_VERSION_NUM >= 170000
#define compat_interval_is_infinite(interval) INTERVAL_NOT_FINITE(interval)
#else
#define compat_interval_is_infinite(interval) false
#endif

/* 16 tells by a context of errors, and not by a result, that there is no such type */
#if PG_VERSION_NUM >= 160000
#include "nodes/miscnodes.h"
#define compat_parse_type(text, type, typmod) \
	do { \
		ErrorSaveContext no_such_type = {T_ErrorSaveContext}; \
		if (!parseTypeString(text, type, typmod, (Node *) &no_such_type)) \
			*(type) = InvalidOid; \
	} while (0)
#else
#define compat_parse_type(text, type, typmod) parseTypeString(text, type, typmod, true)
#endif

#endif							/* INCLOAD_COMPAT_H */
