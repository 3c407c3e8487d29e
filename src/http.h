/*
 * http.h
 *		Requests over HTTP that a process sends while it waits for other things.
 *
 * Nothing here waits for the network but http_wait(), which ends when the
 * process's latch is set. libcurl is started with the first request.
 */
#ifndef INCLOAD_HTTP_H
#define INCLOAD_HTTP_H

#include "postgres.h"

#include "nodes/pg_list.h"

/* HttpRequest: what is POSTed where; needed only until http_start() returns */
typedef struct HttpRequest
{
	const char *url;			/* http or https */
	const char *body;			/* UTF-8 */
	List	   *headers;		/* of char *: "Name: value" */
	const char *user;			/* for basic authentication, or NULL */
	const char *password;
	const char *ca_file;		/* NULL: the system's */
	int			timeout_ms;		/* for all of it */
	int			connect_timeout_ms;
	void	   *owner;			/* comes back with the result */
} HttpRequest;

/* HttpResult: what became of one */
typedef struct HttpResult
{
	void	   *owner;
	long		status;			/* of HTTP; 0 where there was no answer */
	long		retry_after;	/* seconds that the receiver asks for; 0: none */
	char		error[256];		/* without parts of the URL; empty where there was an answer */
} HttpResult;

/*
 * Is that a URL of http or https, with a host? Sets scheme, host and port of it,
 * which is all that may be shown; it can have a password, and a path that is as good as one.
 */
extern bool http_check_url(const char *url, char **origin);

/* begins one; nothing is awaited. An error where libcurl has no memory for it. */
extern void http_start(const HttpRequest *request);

/* how many are under way */
extern int	http_running(void);

/*
 * Waits for the latch, for so many ms, or for the end of a request. The latch
 * stays as it is.
 */
extern void http_wait(long timeout_ms, uint32 wait_event);

/* takes one that has ended; false where there is none */
extern bool http_take_result(HttpResult *result);

/* those of this owner, or all for NULL, are given up without a result */
extern void http_forget(const void *owner);

#endif							/* INCLOAD_HTTP_H */
