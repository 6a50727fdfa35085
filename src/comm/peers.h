// SPDX-License-Identifier: Apache-2.0
/* Who the other processes are, and how one waits for them. */
#ifndef TSR_COMM_PEERS_H
#define TSR_COMM_PEERS_H
#include "base/text.h"
#include "comm/transport.h"

enum { TSR_HOST_BYTES = 64 };

/* What a process tells the others of its process. */
typedef struct tsr_peer {
  char host[TSR_HOST_BYTES]; /* as the kernel names it */
  uint64_t ids;              /* of which namespace the process id is; 0: not known */
  int64_t pid;
  uint64_t begun; /* in the kernel's ticks: a process id is given again */
} tsr_peer;

void tsr_peer_self(tsr_peer *ret_peer);

typedef enum {
  TSR_PEER_ELSEWHERE, /* on another host, or it has not told who it is: nothing can be seen */
  TSR_PEER_RUNS,      /* here; perhaps it computes, perhaps it waits */
  TSR_PEER_STOPPED,   /* here, by SIGSTOP or a debugger */
  TSR_PEER_DEAD       /* it was here */
} tsr_peer_state;

/* What this host's kernel shows of another process. */
tsr_peer_state tsr_peer_look(const tsr_transport *transport, int process);
/* "process 2 on node1 (pid 4711)"; the host as the transport names it, as in all of our messages.
 * */
void tsr_peer_name(const tsr_transport *transport, int process, tsr_text *text);
/* Why it may be silent, as far as can be seen from here: "stopped (SIGSTOP)", "dead", "running",
 * "sleeping in FUNCTION", "stuck in FUNCTION (state D)", "stopped, or its link is cut". */
void tsr_peer_describe(const tsr_transport *transport, int process, tsr_text *text);

/* Waiting in which nothing blocks: some hundred polls at full speed, then the core is offered to
 * others, and after a millisecond without progress the waiter sleeps for 50 to 200 microseconds at
 * a time. Many processes may share few cores, and a message that is about to come is not waited for
 * longer. Starts, and starts anew after progress, with {0}. */
typedef struct {
  double since; /* when the waiting began; 0: it has not */
  int polls;
} tsr_backoff;

/* After a poll that found nothing; the seconds that the waiting has lasted. */
double tsr_backoff_wait(tsr_backoff *backoff);

#endif
