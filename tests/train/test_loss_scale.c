// SPDX-License-Identifier: Apache-2.0
/* The loss scale over good steps and overflows, with values worked out apart from this code. */
#include "tests/check.h"
#include "train/loss_scale.h"
#include <float.h>

static tsr_loss_scale start(tsr_loss_scale_mode mode, float init, int64_t interval) {
  tsr_loss_scale s;
  tsr_loss_scale_init(&s, mode, init, interval);
  return s;
}

static void repeat(tsr_loss_scale *s, int64_t count, bool overflow) {
  for (int64_t i = 0; i < count; i++) tsr_loss_scale_next(s, overflow);
}

#define CHECK_SCALE(s, want) CHECK_AT((s).scale == (want), "%.9g, not %.9g", (s).scale, want)

static void test_tessera(void) {
  tsr_loss_scale s = start(TSR_LOSS_SCALE_TESSERA, 1024, 0);
  CHECK_SCALE(s, 1024.0f);
  repeat(&s, 1, false);
  CHECK_SCALE(s, 1024.10242f);
  repeat(&s, 99, false);
  CHECK_SCALE(s, 1034.2926f);
  repeat(&s, 1, true);
  CHECK_SCALE(s, 517.1463f);

  s = start(TSR_LOSS_SCALE_TESSERA, 65536, 0);
  repeat(&s, 5, false);
  CHECK_SCALE(s, 65536.0f);
  repeat(&s, 1, true);
  CHECK_SCALE(s, 32768.0f);
  repeat(&s, 6900, false); /* ln 2 / ln 1.0001 = 6931.8 steps, and roundings */
  CHECK(s.scale < 65536);
  repeat(&s, 60, false);
  CHECK_SCALE(s, 65536.0f);
}

static void test_interval(void) {
  tsr_loss_scale s = start(TSR_LOSS_SCALE_INTERVAL, 65536, 2000);
  repeat(&s, 1999, false);
  CHECK_SCALE(s, 65536.0f);
  repeat(&s, 1, false);
  CHECK_SCALE(s, 131072.0f);
  repeat(&s, 1999, false);
  repeat(&s, 1, true); /* the count begins anew */
  CHECK_SCALE(s, 65536.0f);
  repeat(&s, 1999, false);
  CHECK_SCALE(s, 65536.0f);
  repeat(&s, 1, false);
  CHECK_SCALE(s, 131072.0f);

  s = start(TSR_LOSS_SCALE_INTERVAL, 0x1p126f, 1);
  repeat(&s, 10, false); /* it stays finite */
  CHECK_SCALE(s, 0x1p127f);
  s = start(TSR_LOSS_SCALE_INTERVAL, FLT_MAX, 1);
  repeat(&s, 1, false);
  CHECK_SCALE(s, FLT_MAX);
}

static void test_floor(void) {
  for (int mode = TSR_LOSS_SCALE_TESSERA; mode <= TSR_LOSS_SCALE_INTERVAL; mode++) {
    tsr_loss_scale s = start((tsr_loss_scale_mode)mode, 3, 1);
    repeat(&s, 1, true);
    CHECK_SCALE(s, 1.5f);
    repeat(&s, 1, true);
    CHECK_SCALE(s, 1.0f);
    repeat(&s, 50, true);
    CHECK_SCALE(s, 1.0f);
    repeat(&s, 1, false);
    CHECK_SCALE(s, mode == TSR_LOSS_SCALE_TESSERA ? 1.0001f : 2.0f);
  }
}

/* A digit is so many hundred good steps, each followed by an overflow. */
static void test_replay(void) {
  static const char steps[] = "903001250007";
  static const float tessera[] = {2240.8923f, 1120.4462f, 577.2865f,  288.64325f,
                                  144.32162f, 72.88611f,  37.179344f, 19.542892f,
                                  9.771446f,  4.885723f,  2.4428616f, 1.3100051f};
  static const float interval[] = {131072.0f, 65536.0f, 131072.0f, 65536.0f, 32768.0f, 16384.0f,
                                   16384.0f,  65536.0f, 32768.0f,  16384.0f, 8192.0f,  65536.0f};
  tsr_loss_scale t = start(TSR_LOSS_SCALE_TESSERA, 4096, 0);
  tsr_loss_scale i = start(TSR_LOSS_SCALE_INTERVAL, 4096, 150);
  for (int at = 0; steps[at]; at++) {
    int64_t good = 100 * (steps[at] - '0');
    repeat(&t, good, false), repeat(&i, good, false);
    tsr_loss_scale_next(&t, true), tsr_loss_scale_next(&i, true);
    CHECK_SCALE(t, tessera[at]);
    CHECK_SCALE(i, interval[at]);
  }
}

int main(void) {
  test_tessera();
  test_interval();
  test_floor();
  test_replay();
  return check_done("loss_scale");
}
