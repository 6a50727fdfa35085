// SPDX-License-Identifier: Apache-2.0
/* The checks that tests are made of: they print the place and go on, so that one run shows all. */
#ifndef TSR_TESTS_CHECK_H
#define TSR_TESTS_CHECK_H
#include <math.h>
#include <stdio.h>
#include <string.h>

static int check_count, check_failed;

#define CHECK_AT(ok, ...)                                                                          \
  do {                                                                                             \
    check_count++;                                                                                 \
    if (!(ok)) {                                                                                   \
      check_failed++;                                                                              \
      fprintf(stderr, "%s:%d: ", __FILE__, __LINE__);                                              \
      fprintf(stderr, __VA_ARGS__);                                                                \
      fputc('\n', stderr);                                                                         \
    }                                                                                              \
  } while (0)

#define CHECK(condition) CHECK_AT((condition), "failed: %s", #condition)
#define CHECK_INT(got, want)                                                                       \
  do {                                                                                             \
    long long got_ = (long long)(got), want_ = (long long)(want);                                  \
    CHECK_AT(got_ == want_, "%s is %lld, not %lld", #got, got_, want_);                            \
  } while (0)
#define CHECK_STR(got, want)                                                                       \
  do {                                                                                             \
    const char *got_ = (got), *want_ = (want);                                                     \
    CHECK_AT(                                                                                      \
        got_ && !strcmp(got_, want_), "%s is\n%s\nnot\n%s", #got, got_ ? got_ : "(null)", want_);  \
  } while (0)
/* Equal to a relative error, or to that absolute error near zero. */
#define CHECK_NEAR(got, want, relative)                                                            \
  do {                                                                                             \
    double got_ = (got), want_ = (want);                                                           \
    double bound_ = (relative) * (fabs(want_) > 1 ? fabs(want_) : 1);                              \
    CHECK_AT(fabs(got_ - want_) <= bound_, "%s is %.9g, not %.9g", #got, got_, want_);             \
  } while (0)

static inline int check_done(const char *name) {
  printf("%s: %d checks, %d failed\n", name, check_count, check_failed);
  return check_failed != 0 || check_count == 0; /* a test that checked nothing fails */
}

#endif
