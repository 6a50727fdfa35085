// SPDX-License-Identifier: Apache-2.0
/* What a page that follows runs is sent: the page's object (page.h) with
 *
 *   "session"   a text of its own for each server
 *   "revision"  grows with each change
 *   "now"       the server's clock, in seconds since 1970
 *   "waiting"   paths at which there is no run yet: [text…]
 *   "left_out"  how many runs are beyond those that are followed
 *   "reading"   while files of runs are still to be read: [runs that are read, runs that were
 *               found]; else null
 *
 * or an increment for a page that has an older revision: instead of "runs"
 *
 *   "changed"   [{"index": of the run, keys whose value is another one…}…]; a run that is new has
 *               all keys. In "series" of an increment a series may be {"tag", "same": true}, or its
 *               points from "from" on (series.h)
 *
 * One thread changes runs; any thread asks. */
#ifndef TSR_HTML_REPORT_FEED_H
#define TSR_HTML_REPORT_FEED_H
#include "html_report/run_json.h"

typedef struct tsr_feed tsr_feed;

/* For as long as the process lives. */
tsr_feed *tsr_feed_new(tsr_arena *arena, const char *version);

/* While a run's data change, and until the feed has taken the change. */
void tsr_feed_lock(tsr_feed *feed);
void tsr_feed_unlock(tsr_feed *feed);

/* Locked: adds a run, whose number is that of the runs before; or takes what has changed of run
 * `index`. The run's data stay until the next call for it. `begins` is another number where the
 * points of its series are not those that it had, and more. */
void tsr_feed_update(tsr_feed *feed, int index, const tsr_page_run *run, int64_t begins);
/* Locked. */
void tsr_feed_set_waiting(tsr_feed *feed, const char *const *paths, int count);
void tsr_feed_set_left_out(tsr_feed *feed, int count); /* locked */
/* Locked: so many of those that were found are read; before the first call none are found. */
void tsr_feed_set_reading(tsr_feed *feed, int read, int found);

/* Of any thread. `since`: "SESSION-REVISION" of what the asker has; NULL: nothing. An increment
 * where that is of this session, else the whole object. */
void tsr_feed_data(tsr_feed *feed, const char *since, tsr_text *ret_json);
void tsr_feed_page(tsr_feed *feed, tsr_text *ret_page);

#endif
