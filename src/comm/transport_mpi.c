// SPDX-License-Identifier: Apache-2.0
/* The transport by MPI. Built once for Open MPI and once for MPICH, each into a plugin of its own:
 * their headers and libraries do not fit each other. */
#include "base/arena.h"
#include "comm/transport.h"
#include <assert.h>
#include <ctype.h>
#include <mpi.h>
#include <string.h>
#include <unistd.h>

#ifdef OPEN_MPI
#define NAME "openmpi"
#else
#define NAME "mpich"
#endif

/* MPI counts in int. What is longer than a piece is counted in pieces of one piece's type and a
 * rest, so that it stays one message. A piece could have 2 GiB; smaller ones are met by everybody
 * and every test. */
enum { PIECE_BYTES = 1 << 24, SUM_MAX = 1 << 26, SEND = -1, SUM = -2 };

typedef struct group {
  MPI_Comm comm;
  struct group *next;
} group;

typedef struct {
  tsr_arena *arena;
  MPI_Comm comm;
  group *groups;
  int process, processes;
  char (*hosts)[MPI_MAX_PROCESSOR_NAME];
  char version[64];
} job;

/* MPI is one per process, begins once and ends once. */
static job the_job;

static bool check(int code, const char *what, char *why) {
  if (code == MPI_SUCCESS) return true;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length;
  MPI_Error_string(code, text, &length);
  for (char *c = text; *c; c++)
    if (*c == '\n') *c = ' ';
  snprintf(why, TSR_WHY_BYTES, "%s: %.400s", what, text);
  return false;
}

/* "openmpi 4.1.4" out of "Open MPI v4.1.4, package: …" or "MPICH Version:    4.0.2\n…". */
static void read_version(job *j) {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length;
  MPI_Get_library_version(text, &length);
  const char *digits = text + strcspn(text, "0123456789");
  snprintf(j->version, sizeof j->version, NAME " %.*s", (int)strcspn(digits, ", \t\n"), digits);
}

static bool check_tags(const job *j, char *why) {
  int *most = NULL, there = 0;
  if (!check(
          MPI_Comm_get_attr(j->comm, MPI_TAG_UB, (void *)&most, &there), "MPI_Comm_get_attr", why))
    return false;
  if (there && *most >= TSR_TRANSPORT_TAGS - 1) return true;
  snprintf(
      why, TSR_WHY_BYTES, "its tags end at %d, and %d are needed", there ? *most : 0,
      TSR_TRANSPORT_TAGS - 1);
  return false;
}

static bool gather_hosts(job *j, char *why) {
  char own[MPI_MAX_PROCESSOR_NAME] = "";
  int length;
  j->hosts = tsr_arena_alloc(j->arena, sizeof *j->hosts * (size_t)j->processes);
  return check(MPI_Get_processor_name(own, &length), "MPI_Get_processor_name", why) &&
         check(
             MPI_Allgather(own, sizeof own, MPI_CHAR, j->hosts, sizeof own, MPI_CHAR, j->comm),
             "MPI_Allgather of the hosts' names", why);
}

static bool open_job(void **ret_state, int *ret_process, int *ret_processes, char *why) {
  job *j = &the_job;
  int begun = 0, level = 0;
  MPI_Initialized(&begun);
  if (begun) {
    snprintf(why, TSR_WHY_BYTES, "MPI was begun before in this process");
    return false;
  }
  int code = MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level);
  if (code != MPI_SUCCESS || level < MPI_THREAD_FUNNELED) {
    snprintf(
        why, TSR_WHY_BYTES, "MPI_Init_thread returned %d, and threads of level %d of %d", code,
        level, MPI_THREAD_FUNNELED);
    return false;
  }
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  j->arena = tsr_arena_new();
  if (!check(MPI_Comm_dup(MPI_COMM_WORLD, &j->comm), "MPI_Comm_dup", why)) return false;
  MPI_Comm_set_errhandler(j->comm, MPI_ERRORS_RETURN);
  MPI_Comm_rank(j->comm, &j->process);
  MPI_Comm_size(j->comm, &j->processes);
  read_version(j);
  if (!check_tags(j, why) || !gather_hosts(j, why)) return false;
  *ret_state = j;
  *ret_process = j->process;
  *ret_processes = j->processes;
  return true;
}

static const char *get_version(void *state) { return ((job *)state)->version; }

static const char *get_host(void *state, int process) {
  job *j = state;
  assert(process >= 0 && process < j->processes);
  return j->hosts[process];
}

/* A type of which *ret_count make `bytes`; of a long message it is new and must be freed. */
static bool make_type(int64_t bytes, MPI_Datatype *ret_type, int *ret_count, char *why) {
  *ret_type = MPI_BYTE;
  *ret_count = (int)bytes;
  if (bytes <= PIECE_BYTES) return true;
  MPI_Datatype piece;
  if (!check(MPI_Type_contiguous(PIECE_BYTES, MPI_BYTE, &piece), "MPI_Type_contiguous", why))
    return false;
  int64_t pieces = bytes / PIECE_BYTES;
  assert(pieces <= INT32_MAX);
  int lengths[2] = {(int)pieces, (int)(bytes % PIECE_BYTES)};
  MPI_Aint places[2] = {0, (MPI_Aint)(pieces * PIECE_BYTES)};
  MPI_Datatype types[2] = {piece, MPI_BYTE};
  *ret_count = 1;
  bool ok = check(
                MPI_Type_create_struct(2, lengths, places, types, ret_type),
                "MPI_Type_create_struct", why) &&
            check(MPI_Type_commit(ret_type), "MPI_Type_commit", why);
  MPI_Type_free(&piece);
  return ok;
}

static_assert(sizeof(MPI_Request) <= sizeof(void *), "a request fits a message's word");
static_assert(sizeof(int64_t) <= sizeof(void *), "a count of bytes fits a message's word");

/* words: the request; the bytes of a receive, or SEND, or SUM; the peer; the tag. */
static void
fill_message(tsr_message *message, MPI_Request request, int64_t bytes, int peer, int tag) {
  *message = (tsr_message){.words = {NULL, (void *)bytes, (void *)(intptr_t)peer, NULL}};
  message->words[3] = (void *)(intptr_t)tag;
  memcpy(&message->words[0], &request, sizeof request);
}

static bool begin_send(
    void *state, int to, int tag, const void *from, int64_t bytes, tsr_message *ret, char *why) {
  job *j = state;
  assert(to >= 0 && to < j->processes && tag >= 0 && tag < TSR_TRANSPORT_TAGS && bytes >= 0);
  MPI_Datatype type;
  MPI_Request request;
  int count;
  if (!make_type(bytes, &type, &count, why)) return false;
  bool ok = check(MPI_Isend(from, count, type, to, tag, j->comm, &request), "MPI_Isend", why);
  if (type != MPI_BYTE) MPI_Type_free(&type); /* lives on until the message is done */
  if (ok) fill_message(ret, request, SEND, to, tag);
  return ok;
}

static bool begin_receive(
    void *state, int from, int tag, void *to, int64_t bytes, tsr_message *ret, char *why) {
  job *j = state;
  assert(from >= 0 && from < j->processes && tag >= 0 && tag < TSR_TRANSPORT_TAGS && bytes >= 0);
  MPI_Datatype type;
  MPI_Request request;
  int count;
  if (!make_type(bytes, &type, &count, why)) return false;
  bool ok = check(MPI_Irecv(to, count, type, from, tag, j->comm, &request), "MPI_Irecv", why);
  if (type != MPI_BYTE) MPI_Type_free(&type);
  if (ok) fill_message(ret, request, bytes, from, tag);
  return ok;
}

/* The reason of a failed MPI_Test. */
static void explain(const tsr_message *message, int code, char *why) {
  int64_t bytes = (int64_t)message->words[1];
  int peer = (int)(intptr_t)message->words[2], tag = (int)(intptr_t)message->words[3];
  int class = 0;
  if (bytes == SUM) {
    check(code, "a sum of a group", why);
    return;
  }
  MPI_Error_class(code, &class);
  if (class == MPI_ERR_TRUNCATE && bytes != SEND) {
    snprintf(
        why, TSR_WHY_BYTES, "process %d sent more than the %lld bytes that were asked for (tag %d)",
        peer, (long long)bytes, tag);
    return;
  }
  char what[64];
  snprintf(what, sizeof what, "%s process %d (tag %d)", bytes == SEND ? "to" : "from", peer, tag);
  check(code, what, why);
}

static tsr_message_state test_message(void *state, tsr_message *message, char *why) {
  (void)state;
  MPI_Request request;
  MPI_Status status;
  int done = 0;
  memcpy(&request, &message->words[0], sizeof request);
  int code = MPI_Test(&request, &done, &status);
  memcpy(&message->words[0], &request, sizeof request);
  if (code != MPI_SUCCESS) {
    explain(message, code, why);
    return TSR_MESSAGE_FAILED;
  }
  if (!done) return TSR_MESSAGE_PENDING;
  int64_t bytes = (int64_t)message->words[1];
  if (bytes == SEND || bytes == SUM) return TSR_MESSAGE_DONE;
  MPI_Count came = 0;
  if (!check(MPI_Get_elements_x(&status, MPI_BYTE, &came), "MPI_Get_elements_x", why))
    return TSR_MESSAGE_FAILED;
  if (came == bytes) return TSR_MESSAGE_DONE;
  snprintf(
      why, TSR_WHY_BYTES, "process %d sent %lld of the %lld bytes that were asked for (tag %d)",
      (int)(intptr_t)message->words[2], (long long)came, (long long)bytes,
      (int)(intptr_t)message->words[3]);
  return TSR_MESSAGE_FAILED;
}

static bool sum_all(void *state, float *numbers, int64_t count, char *why) {
  job *j = state;
  for (int64_t at = 0; at < count; at += SUM_MAX) {
    int n = count - at < SUM_MAX ? (int)(count - at) : SUM_MAX;
    int code = MPI_Allreduce(MPI_IN_PLACE, numbers + at, n, MPI_FLOAT, MPI_SUM, j->comm);
    if (!check(code, "MPI_Allreduce", why)) return false;
  }
  return true;
}

/* Groups of the same processes have communicators of their own, so that their sums need no common
 * order. */
static bool form_group(void *state, const int *processes, int count, void **ret_group, char *why) {
  job *j = state;
  group *g = tsr_arena_alloc(j->arena, sizeof *g);
  MPI_Group all, some;
  *g = (group){.comm = MPI_COMM_NULL, .next = j->groups};
  if (!check(MPI_Comm_group(j->comm, &all), "MPI_Comm_group", why)) return false;
  bool ok = check(MPI_Group_incl(all, count, processes, &some), "MPI_Group_incl", why);
  MPI_Group_free(&all);
  if (!ok) return false;
  ok = check(MPI_Comm_create_group(j->comm, some, 0, &g->comm), "MPI_Comm_create_group", why);
  MPI_Group_free(&some);
  if (!ok) return false;
  MPI_Comm_set_errhandler(g->comm, MPI_ERRORS_RETURN);
  j->groups = g;
  *ret_group = g;
  return true;
}

static bool
begin_sum(void *of, const float *in, float *out, int64_t count, tsr_message *ret, char *why) {
  const group *g = of;
  MPI_Request request;
  assert(count >= 0 && count <= TSR_TRANSPORT_SUM_MAX);
  const void *from = in == out ? MPI_IN_PLACE : in;
  int code = MPI_Iallreduce(from, out, (int)count, MPI_FLOAT, MPI_SUM, g->comm, &request);
  if (!check(code, "MPI_Iallreduce", why)) return false;
  fill_message(ret, request, SUM, 0, 0);
  return true;
}

static bool begin_sum_of_slices(
    void *of, const float *in, float *out, const int *counts, tsr_message *ret, char *why) {
  const group *g = of;
  MPI_Request request;
  int code = MPI_Ireduce_scatter(in, out, counts, MPI_FLOAT, MPI_SUM, g->comm, &request);
  if (!check(code, "MPI_Ireduce_scatter", why)) return false;
  fill_message(ret, request, SUM, 0, 0);
  return true;
}

static void close_job(void *state) {
  job *j = state;
  for (group *g = j->groups; g; g = g->next) MPI_Comm_free(&g->comm);
  MPI_Comm_free(&j->comm);
  MPI_Finalize();
  tsr_arena_free(j->arena);
  *j = (job){0};
}

static void abort_job(void *state, int code) {
  MPI_Abort(((job *)state)->comm, code);
  _exit(code);
}

extern const tsr_transport_table tsr_transport_entry;
__attribute__((visibility("default"))) const tsr_transport_table tsr_transport_entry = {
    .abi = TSR_TRANSPORT_ABI,
    .bytes = sizeof(tsr_transport_table),
    .name = NAME,
    .open = open_job,
    .version = get_version,
    .host = get_host,
    .send = begin_send,
    .receive = begin_receive,
    .test = test_message,
    .all_reduce = sum_all,
    .form = form_group,
    .sum = begin_sum,
    .sum_slices = begin_sum_of_slices,
    .close = close_job,
    .abort = abort_job,
};
