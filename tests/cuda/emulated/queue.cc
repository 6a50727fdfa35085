// SPDX-License-Identifier: Apache-2.0
#include "queue.h"
#include "memory.h"
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <ctime>

namespace emulator {

/* A word begins the variable, or is behind a comma. */
long long setting(const char *word, long long otherwise) {
  const char *text = getenv("EMULATED_CUDA"), *at = text;
  while (at && (at = strstr(at, word)) && at != text && at[-1] != ',') at++;
  return at ? strtoll(at + strlen(word), nullptr, 10) : otherwise;
}

/* ---- random numbers: splitmix64 ---- */

static uint64_t drawn(uint64_t below) {
  static uint64_t state = (uint64_t)setting("seed=", 0) * 0x9E3779B97F4A7C15u;
  uint64_t x = state += 0x9E3779B97F4A7C15u;
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
  x = (x ^ x >> 27) * 0x94D049BB133111EBu;
  return (x ^ x >> 31) % below;
}

static bool in_order() {
  static const bool is = setting("seed=", 0) == 0;
  return is;
}

enum { PRIORITIES = 1 << 20, CHANGES_IN = 32, EAGERNESS = 16, PASSES = 64, CLOSES_IN = 4 };

std::shared_ptr<queue_lane> lane_new() {
  return std::make_shared<queue_lane>(queue_lane{in_order() ? 0 : drawn(PRIORITIES)});
}

/* ---- the operations ---- */

EMULATED_FIRST static std::vector<op> ready;
static size_t pending; /* ready, or waiting for others */
EMULATED_FIRST static std::vector<std::weak_ptr<operation>> host_users;
static const operation *running;

const operation *queue_running() { return running; }
bool queue_is_idle() { return pending == 0; }

const operation *queue_user(const void *host, size_t bytes) {
  uintptr_t begin = (uintptr_t)host;
  for (const auto &weak : host_users) {
    op o = weak.lock();
    if (!o || o->done) continue;
    uintptr_t at = (uintptr_t)o->host;
    if (at < begin + bytes && begin < at + o->host_bytes) return o.get();
  }
  return nullptr;
}

static void end(const op &o) {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  o->ended_ms = 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
  o->done = true;
  o->run = nullptr;
  o->after.clear();
  ready.erase(std::find(ready.begin(), ready.end(), o));
  pending--;
  for (const op &next : o->then)
    if (--next->waits == 0) ready.push_back(next);
  o->then.clear();
  if (!in_order() && drawn(CHANGES_IN) == 0) o->of->priority = drawn(PRIORITIES);
}

static bool precedes(const op &a, const op &b) {
  if (!in_order() && a->of->priority != b->of->priority) return a->of->priority > b->of->priority;
  return a->number < b->number;
}

/* The first of the ready ones that is done, or gets anywhere. */
static bool run_one() {
  std::vector<op> candidates = ready;
  while (!candidates.empty()) {
    auto at = std::min_element(candidates.begin(), candidates.end(), precedes);
    op o = *at;
    candidates.erase(at);
    running = o.get();
    progress came = o->run();
    running = nullptr;
    if (came == DONE) end(o);
    if (came != NOTHING) return true;
  }
  return false;
}

/* The blocks that operations have opened stay so for a while, because to close them takes longer
 * than most operations. */
static void close_memory() {
  if (drawn(CLOSES_IN) == 0) memory_allow(ACCESS_HOST_BUSY);
}

static void rest() {
  timespec t = {0, 50000};
  nanosleep(&t, nullptr);
}

void queue_wait(const op &target) {
  bool waits = target ? !target->done : pending > 0;
  if (waits) memory_allow(ACCESS_DEVICE);
  while (target ? !target->done : pending > 0)
    if (!run_one()) rest();
  if (!pending) memory_allow(ACCESS_HOST);
  else if (waits) memory_allow(ACCESS_HOST_BUSY);
}

static void run_some(uint64_t most) {
  if (ready.empty()) return;
  memory_allow(ACCESS_DEVICE);
  while (most-- && run_one()) {
  }
  close_memory();
}

void queue_pass() {
  run_some(drawn(PASSES));
  if (!pending) memory_allow(ACCESS_HOST); /* the host asks */
}

void queue_call_host(const std::function<void()> &function) {
  memory_allow(ACCESS_HOST_BUSY);
  function();
  memory_allow(ACCESS_DEVICE);
}

/* How many of 16 calls see an operation run before they return. */
static uint64_t eagerness() {
  static const uint64_t levels[] = {0, 0, 1, 8}, is = levels[drawn(4)];
  return is;
}

op queue_add(
    const char *what, const std::shared_ptr<queue_lane> &of, const std::vector<op> &after, work run,
    const void *host, size_t host_bytes) {
  static uint64_t numbers;
  op o = std::make_shared<operation>();
  o->what = what;
  o->run = std::move(run);
  o->of = of;
  o->host = host;
  o->host_bytes = host_bytes;
  o->number = numbers++;
  for (const op &before : after) {
    if (!before || before->done) continue;
    o->after.push_back(before);
    before->then.push_back(o);
  }
  o->waits = o->after.size();
  pending++;
  if (o->waits == 0) ready.push_back(o);
  if (host) {
    auto is_done = [](const std::weak_ptr<operation> &w) { return w.expired() || w.lock()->done; };
    host_users.erase(
        std::remove_if(host_users.begin(), host_users.end(), is_done), host_users.end());
    host_users.push_back(o);
  }
  if (in_order()) queue_wait(nullptr);
  else if (drawn(EAGERNESS) < eagerness()) run_some(drawn(PASSES));
  else close_memory();
  return o;
}

} // namespace emulator
