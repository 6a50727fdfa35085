// SPDX-License-Identifier: Apache-2.0
/* CRC-32C by the vectors of RFC 3720; histograms against a count; records on a disk that is full for
 * a while, or in a file that is removed. */
#include "base/fault.h"
#include "tests/check.h"
#include "tensorboard/crc32c.h"
#include "tensorboard/event_file.h"
#include "tensorboard/histogram.h"
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* RFC 3720, B.4. */
static void test_crc(void) {
  unsigned char bytes[32] = {0};
  CHECK(tsr_crc32c(bytes, 32) == 0x8a9136aa);
  memset(bytes, 0xff, 32);
  CHECK(tsr_crc32c(bytes, 32) == 0x62a8ab43);
  for (int i = 0; i < 32; i++) bytes[i] = (unsigned char)i;
  CHECK(tsr_crc32c(bytes, 32) == 0x46dd794e);
  for (int i = 0; i < 32; i++) bytes[i] = (unsigned char)(31 - i);
  CHECK(tsr_crc32c(bytes, 32) == 0x113fdb5c);
  CHECK(tsr_crc32c("123456789", 9) == 0xe3069283);
}

static void check_buckets(const float *numbers, int64_t count) {
  tsr_histogram h;
  tsr_histogram_make(numbers, count, &h);
  double all = 0, below = -INFINITY;
  for (int b = 0; b < h.buckets; below = h.limit[b++]) {
    int64_t found = 0;
    for (int64_t i = 0; i < count; i++) {
      double x = (double)numbers[i];
      found += isfinite(x) && x > below && x <= h.limit[b];
    }
    CHECK((double)found == h.count[b]);
    CHECK(!b || h.limit[b] > h.limit[b - 1]);
    all += h.count[b];
  }
  CHECK((int64_t)all == h.num && h.num + h.others == count);
}

static void test_histogram(void) {
  float numbers[1000];
  tsr_histogram h;
  for (int i = 0; i < 1000; i++) numbers[i] = sinf((float)i * 0.37f) * (float)(i % 7 - 3);
  check_buckets(numbers, 1000);
  for (int i = 0; i < 1000; i++) numbers[i] = (float)(i % 65); /* numbers that are limits */
  check_buckets(numbers, 1000);
  numbers[3] = NAN, numbers[500] = INFINITY, numbers[999] = -INFINITY;
  check_buckets(numbers, 1000);
  for (int i = 0; i < 1000; i++) numbers[i] = -2.5f;
  tsr_histogram_make(numbers, 1000, &h);
  CHECK(h.buckets == 1 && h.count[0] == 1000 && h.min == -2.5 && h.max == -2.5);
  numbers[0] = NAN;
  tsr_histogram_make(numbers, 1, &h);
  CHECK(h.buckets == 1 && h.num == 0 && h.others == 1 && h.count[0] == 0);
  numbers[0] = 3e38f, numbers[1] = -3e38f; /* a range that f32 does not hold */
  check_buckets(numbers, 2);
}

/* The length of the only file in the folder, which is then removed. */
static long file_bytes(const char *folder) {
  char path[600];
  long bytes = -1;
  DIR *opened = opendir(folder);
  for (const struct dirent *e; (e = readdir(opened));) {
    if (strncmp(e->d_name, TSR_EVENT_FILE_PREFIX, strlen(TSR_EVENT_FILE_PREFIX)) != 0) continue;
    snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
    FILE *f = fopen(path, "rb");
    fseek(f, 0, SEEK_END);
    bytes = ftell(f);
    fclose(f);
    remove(path);
  }
  closedir(opened);
  return bytes;
}

/* In a process of its own, where the faults are counted. */
static void write_on_full_disk(const char *folder, const char *fault, bool lasts) {
  tsr_arena *arena = tsr_arena_new();
  tsr_diags *diags = tsr_diags_new(arena);
  tsr_event_file *file = tsr_event_file_new(arena, folder);
  tsr_text event = {0};
  bool kept;
  setenv("TESSERA_FAULT", fault, 1);
  tsr_fault_read();
  CHECK(tsr_event_file_begin(file, 0, &kept, diags) && !kept);
  for (int step = 1; step <= 4; step++) {
    event.length = 0;
    tsr_text_add(&event, "the event of step %d", step); /* 19 bytes, and 16 */
    tsr_event_file_add(file, &event);
    tsr_event_file_flush(file, step, diags);
  }
  CHECK(tsr_event_file_finish(file, diags) == !lasts);
  CHECK(tsr_diags_errors(diags) == lasts);
  tsr_event_file_close(file);
  tsr_text_free(&event);
  tsr_arena_free(arena);
}

/* Half of a write that fails is cut off, and the records are written with the next ones. */
static void test_full_disk(void) {
  char folder[] = "/tmp/events-XXXXXX";
  if (!mkdtemp(folder)) exit(1);
  /* 1 makes the file; then a write for each step, and a cut behind one that has failed */
  static const struct {
    const char *fault;
    int records; /* that are in the end */
  } cases[] = {{"ENOSPC@3", 4}, {"ENOSPC@2-4", 4}, {"EIO@5", 4}, {"ENOSPC@4-", 2}, {"short@3", 4}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    int status;
    bool lasts = cases[i].records < 4;
    pid_t child = fork();
    if (!child) {
      write_on_full_disk(folder, cases[i].fault, lasts);
      _exit(check_failed > 0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    long bytes = file_bytes(folder);
    if (!lasts) CHECK(bytes == 35L * cases[i].records);
    else CHECK(bytes >= 35L * cases[i].records && bytes < 35L * (cases[i].records + 1));
  }
  CHECK(!rmdir(folder));
}

/* One warning, however many steps follow. The next file of the run is there again. */
static void test_removed(void) {
  char folder[] = "/tmp/events-XXXXXX";
  if (!mkdtemp(folder)) exit(1);
  tsr_arena *arena = tsr_arena_new();
  tsr_diags *diags = tsr_diags_new(arena);
  tsr_event_file *file = tsr_event_file_new(arena, folder);
  tsr_text event = {0};
  bool kept;
  tsr_text_add(&event, "an event");
  for (int begins = 1; begins <= 2; begins++) {
    CHECK(tsr_event_file_begin(file, 0, &kept, diags));
    CHECK(tsr_diags_waiting(diags) == begins - 1);
    for (int step = 1; step <= 3; step++) {
      tsr_event_file_add(file, &event);
      tsr_event_file_flush(file, step, diags);
      if (step == 1) CHECK(file_bytes(folder) == 16 + 8);
    }
    CHECK(tsr_event_file_finish(file, diags));
    CHECK(tsr_diags_waiting(diags) == begins && !tsr_diags_errors(diags));
  }
  tsr_event_file_close(file);
  tsr_text_free(&event);
  tsr_arena_free(arena);
  CHECK(!rmdir(folder));
}

int main(void) {
  test_crc();
  test_histogram();
  test_full_disk();
  test_removed();
  return check_done("event_file");
}
