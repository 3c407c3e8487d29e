/*
 * http.c
 *		Requests over HTTP that a process sends while it waits for other things.
 *
 * libcurl's multi interface, driven by the process's own waiting: libcurl tells
 * by callbacks which sockets it waits for and until when, and these are waited
 * for beside the latch. The callbacks only take notes in malloc'ed memory: an
 * error must not leap over libcurl. It may start threads that look up names;
 * signals stay with this process's only thread, as those inherit a mask.
 *
 * Only http and https, no redirects, certificates verified, a bounded answer of
 * which nothing is kept, and nothing from the environment: no proxy, no .netrc.
 */
#include "postgres.h"

#include <curl/curl.h>
#include <signal.h>

#include "miscadmin.h"
#include "portability/instr_time.h"
#include "storage/latch.h"

#include "compat.h"
#include "http.h"

/* an answer that is longer than this is not read to its end */
#define MAX_ANSWER (64 * 1024)

/* Transfer: a request under way; malloc'ed, as libcurl writes into it */
typedef struct Transfer
{
	CURL	   *easy;
	struct curl_slist *headers;
	void	   *owner;
	size_t		received;
	char		error[CURL_ERROR_SIZE];
	struct Transfer *next;
} Transfer;

/* Watched: a socket that libcurl waits for */
typedef struct Watched
{
	curl_socket_t socket;
	int			what;			/* CURL_POLL_... */
} Watched;

static CURLM *multi = NULL;
static Transfer *transfers = NULL;
static int	ntransfers = 0;
static Watched *watched = NULL;
static int	nwatched = 0;
static int	max_watched = 0;
static int64 wakeup = 0;		/* when libcurl wants to be called, by now_ms(); 0: not by time */

/* by a clock that nobody sets: a wait is not to last as long as the other one was set back */
static int64
now_ms(void)
{
	instr_time	now;

	INSTR_TIME_SET_CURRENT(now);
	return (int64) INSTR_TIME_GET_MILLISEC(now);
}

/* "mask" gets what was blocked before; everything is from here on */
static void
block_signals(sigset_t *mask)
{
	sigset_t	all;

	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, mask);
}

static void
restore_signals(const sigset_t *mask)
{
	sigprocmask(SIG_SETMASK, mask, NULL);
}

bool
http_check_url(const char *url, char **origin)
{
	CURLU	   *parsed = curl_url();
	char	   *scheme = NULL;
	char	   *host = NULL;
	char	   *port = NULL;
	bool		is_good;

	is_good = parsed && curl_url_set(parsed, CURLUPART_URL, url, 0) == CURLUE_OK &&
		curl_url_get(parsed, CURLUPART_SCHEME, &scheme, 0) == CURLUE_OK &&
		curl_url_get(parsed, CURLUPART_HOST, &host, 0) == CURLUE_OK &&
		(strcmp(scheme, "http") == 0 || strcmp(scheme, "https") == 0);
	if (is_good)
	{
		(void) curl_url_get(parsed, CURLUPART_PORT, &port, 0);
		*origin = psprintf("%s://%s%s%s", scheme, host, port ? ":" : "", port ? port : "");
	}
	curl_free(scheme);
	curl_free(host);
	curl_free(port);
	curl_url_cleanup(parsed);
	return is_good;
}

static int
note_socket(CURL *easy, curl_socket_t s, int what, void *arg, void *socket_arg)
{
	int			i = 0;

	while (i < nwatched && watched[i].socket != s)
		i++;
	if (what == CURL_POLL_REMOVE)
	{
		if (i < nwatched)
			watched[i] = watched[--nwatched];
		return 0;
	}
	if (i == max_watched)
	{
		Watched    *larger = realloc(watched, sizeof(Watched) * (max_watched + 16));

		if (larger == NULL)
			return -1;
		watched = larger;
		max_watched += 16;
	}
	if (i == nwatched)
		nwatched++;
	watched[i].socket = s;
	watched[i].what = what;
	return 0;
}

static int
note_timer(CURLM *m, long timeout_ms, void *arg)
{
	wakeup = timeout_ms < 0 ? 0 : Max(now_ms() + timeout_ms, 1);
	return 0;
}

/* nothing of an answer is kept; less than "size" taken ends the transfer */
static size_t
take_answer(char *data, size_t size, size_t n, void *arg)
{
	Transfer   *transfer = arg;

	transfer->received += size * n;
	return transfer->received > MAX_ANSWER ? 0 : size * n;
}

static void
out_of_memory(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_OUT_OF_MEMORY),
			 errmsg("out of memory"),
			 errdetail("libcurl has no memory for a request.")));
}

static void
begin_library(void)
{
	sigset_t	mask;
	bool		has_begun;

	if (multi)
		return;
	block_signals(&mask);
	has_begun = curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK && (multi = curl_multi_init()) != NULL;
	restore_signals(&mask);
	if (!has_begun)
		out_of_memory();
	curl_multi_setopt(multi, CURLMOPT_SOCKETFUNCTION, note_socket);
	curl_multi_setopt(multi, CURLMOPT_TIMERFUNCTION, note_timer);
	curl_multi_setopt(multi, CURLMOPT_MAXCONNECTS, 8L);
}

static void
free_transfer(Transfer *transfer)
{
	if (transfer->easy)
		curl_easy_cleanup(transfer->easy);
	curl_slist_free_all(transfer->headers);
	free(transfer);
}

/* in the one place where all is set that keeps a request where it belongs; false without memory */
static bool
describe_request(Transfer *transfer, const HttpRequest *request)
{
	CURL	   *easy = transfer->easy;
	ListCell   *lc;
	bool		is_good = true;

	foreach(lc, request->headers)
	{
		struct curl_slist *longer = curl_slist_append(transfer->headers, lfirst(lc));

		if (longer == NULL)
			return false;
		transfer->headers = longer;
	}
#define SET(option, value) is_good &= curl_easy_setopt(easy, option, value) == CURLE_OK
#if LIBCURL_VERSION_NUM >= 0x075500
	SET(CURLOPT_PROTOCOLS_STR, "http,https");
#else
	SET(CURLOPT_PROTOCOLS, (long) (CURLPROTO_HTTP | CURLPROTO_HTTPS));
#endif
	SET(CURLOPT_URL, request->url);
	SET(CURLOPT_COPYPOSTFIELDS, request->body);
	SET(CURLOPT_HTTPHEADER, transfer->headers);
	SET(CURLOPT_FOLLOWLOCATION, 0L);
	SET(CURLOPT_SSL_VERIFYPEER, 1L);
	SET(CURLOPT_SSL_VERIFYHOST, 2L);
	SET(CURLOPT_SSLVERSION, (long) CURL_SSLVERSION_TLSv1_2);
	if (request->ca_file)
		SET(CURLOPT_CAINFO, request->ca_file);
	if (request->user)
	{
		SET(CURLOPT_HTTPAUTH, (long) CURLAUTH_BASIC);
		SET(CURLOPT_USERNAME, request->user);
		SET(CURLOPT_PASSWORD, request->password ? request->password : "");
	}
	SET(CURLOPT_NOPROXY, "*");
	SET(CURLOPT_NETRC, (long) CURL_NETRC_IGNORED);
	SET(CURLOPT_NOSIGNAL, 1L);
	/* who looks up a name that nobody answers for is left behind, or else waited for: longer than any timeout of ours */
#if LIBCURL_VERSION_NUM >= 0x075700
	SET(CURLOPT_QUICK_EXIT, 1L);
#endif
	SET(CURLOPT_USERAGENT, "incload");
	SET(CURLOPT_TIMEOUT_MS, (long) request->timeout_ms);
	SET(CURLOPT_CONNECTTIMEOUT_MS, (long) request->connect_timeout_ms);
	SET(CURLOPT_WRITEFUNCTION, take_answer);
	SET(CURLOPT_WRITEDATA, transfer);
	SET(CURLOPT_ERRORBUFFER, transfer->error);
	SET(CURLOPT_PRIVATE, transfer);
#undef SET
	return is_good;
}

void
http_start(const HttpRequest *request)
{
	Transfer   *transfer;
	sigset_t	mask;
	bool		has_begun;

	begin_library();
	transfer = calloc(1, sizeof(Transfer));
	if (transfer == NULL)
		out_of_memory();
	transfer->owner = request->owner;
	block_signals(&mask);
	transfer->easy = curl_easy_init();
	has_begun = transfer->easy && describe_request(transfer, request) &&
		curl_multi_add_handle(multi, transfer->easy) == CURLM_OK;
	if (!has_begun)
		free_transfer(transfer);
	restore_signals(&mask);
	if (!has_begun)
		out_of_memory();
	transfer->next = transfers;
	transfers = transfer;
	ntransfers++;
}

int
http_running(void)
{
	return ntransfers;
}

/* has libcurl go on with a socket, or with what is due; true where a request has ended */
static bool
go_on(curl_socket_t s, int what)
{
	sigset_t	mask;
	int			running = 0;

	block_signals(&mask);
	(void) curl_multi_socket_action(multi, s, what, &running);
	restore_signals(&mask);
	return running < ntransfers;
}

/* a latch that is set again and again must not keep libcurl from its sockets: it looks at each itself */
static bool
look_at_sockets(void)
{
	curl_socket_t *sockets = palloc(sizeof(curl_socket_t) * (nwatched + 1));
	int			n = nwatched;
	bool		is_over = false;

	for (int i = 0; i < n; i++)
		sockets[i] = watched[i].socket;
	for (int i = 0; i < n; i++)
		is_over |= go_on(sockets[i], 0);
	pfree(sockets);
	return is_over;
}

/* waits once, and has libcurl look after what has happened; true where there is a reason to return */
static bool
wait_once(long timeout_ms, uint32 wait_event)
{
	int			n = nwatched;
	WaitEventSet *set = compat_CreateWaitEventSet(n + 2);
	WaitEvent  *events = palloc(sizeof(WaitEvent) * (n + 2));
	int			happened;
	bool		is_over = false;

	AddWaitEventToSet(set, WL_LATCH_SET, PGINVALID_SOCKET, MyLatch, NULL);
	AddWaitEventToSet(set, WL_EXIT_ON_PM_DEATH, PGINVALID_SOCKET, NULL, NULL);
	for (int i = 0; i < n; i++)
		AddWaitEventToSet(set, (watched[i].what & CURL_POLL_IN ? WL_SOCKET_READABLE : 0) |
						  (watched[i].what & CURL_POLL_OUT ? WL_SOCKET_WRITEABLE : 0),
						  watched[i].socket, NULL, NULL);
	happened = WaitEventSetWait(set, timeout_ms, events, n + 2, wait_event);
	FreeWaitEventSet(set);
	for (int i = 0; i < happened; i++)
	{
		if (events[i].events & WL_LATCH_SET)
			is_over = true;
		else
			is_over |= go_on(events[i].fd, (events[i].events & WL_SOCKET_READABLE ? CURL_CSELECT_IN : 0) |
							 (events[i].events & WL_SOCKET_WRITEABLE ? CURL_CSELECT_OUT : 0));
	}
	pfree(events);
	return is_over;
}

void
http_wait(long timeout_ms, uint32 wait_event)
{
	int64		deadline = now_ms() + timeout_ms;
	bool		is_over;

	/* a request that was just added */
	is_over = go_on(CURL_SOCKET_TIMEOUT, 0) || look_at_sockets();
	while (!is_over)
	{
		int64		now = now_ms();
		int64		left = Max(deadline - now, 0);

		if (wakeup != 0 && now >= wakeup)
		{
			wakeup = 0;
			is_over = go_on(CURL_SOCKET_TIMEOUT, 0);
			continue;
		}
		if (wakeup != 0)
			left = Min(left, wakeup - now);
		is_over = wait_once((long) left, wait_event) || now_ms() >= deadline;
	}
}

/* the transfer is libcurl's no more */
static void
end_transfer(Transfer *transfer)
{
	Transfer  **link = &transfers;
	sigset_t	mask;

	while (*link != transfer)
		link = &(*link)->next;
	*link = transfer->next;
	ntransfers--;
	block_signals(&mask);
	(void) curl_multi_remove_handle(multi, transfer->easy);
	free_transfer(transfer);
	restore_signals(&mask);
}

bool
http_take_result(HttpResult *result)
{
	CURLMsg    *message;
	Transfer   *transfer;
	CURLcode	code;
	int			left;
	curl_off_t	retry_after = 0;

	if (multi == NULL)
		return false;
	do
	{
		message = curl_multi_info_read(multi, &left);
		if (message == NULL)
			return false;
	} while (message->msg != CURLMSG_DONE);
	code = message->data.result;
	(void) curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **) &transfer);

	memset(result, 0, sizeof(HttpResult));
	result->owner = transfer->owner;
	/* an answer that is too long is one */
	if (code == CURLE_OK || (code == CURLE_WRITE_ERROR && transfer->received > MAX_ANSWER))
	{
		(void) curl_easy_getinfo(transfer->easy, CURLINFO_RESPONSE_CODE, &result->status);
		(void) curl_easy_getinfo(transfer->easy, CURLINFO_RETRY_AFTER, &retry_after);
		result->retry_after = (long) Min(retry_after, 3600);
	}
	else
	{
		/*
		 * Only what is wrong with a certificate is worth more than the kind of fault:
		 * other texts can have parts of the URL in them.
		 */
		strlcpy(result->error,
				code == CURLE_PEER_FAILED_VERIFICATION && transfer->error[0]
				? transfer->error : curl_easy_strerror(code), sizeof(result->error));
	}
	end_transfer(transfer);
	return true;
}

void
http_forget(const void *owner)
{
	Transfer   *transfer = transfers;

	while (transfer)
	{
		Transfer   *next = transfer->next;

		if (owner == NULL || transfer->owner == owner)
			end_transfer(transfer);
		transfer = next;
	}
}
