// SPDX-License-Identifier: Apache-2.0
/* What the doctor says of devices that a fake plugin has, whole and with each of its faults.
 * usage: test_doctor FOLDER (of the fake plugin) */
#include "cli/doctor/doctor.h"
#include "cli/doctor/findings.h"
#include "mesh/mesh.h"
#include "tests/check.h"
#include <stdlib.h>
#include <unistd.h>

static tsr_arena *texts;
static const char *folder;

/* What a layer says in a process of its own. */
static const char *say(const char *fault, const char *name, tsr_layer *layer, bool *ret_well) {
  tsr_findings f = {.arena = texts, .kernels = tsr_kernels_get(NULL)};
  if (fault) setenv("FAKE_CUDA", fault, 1);
  else unsetenv("FAKE_CUDA");
  tsr_ask_in_subprocess(&f, name, layer, 1);
  *ret_well = !f.mismatched;
  const char *said = tsr_arena_strdup(texts, f.text.data ? f.text.data : "");
  tsr_text_free(&f.text);
  return said;
}

static const char *head(void) {
  return tsr_arena_printf(
      texts,
      "cuda        found       %s/libtessera-cuda.so, built with CUDA 13.0, runs with CUDA 13.1\n",
      folder);
}

#define DEVICE(number, pci)                                                                        \
  "device      found       " number                                                                \
  ": Fake H200, sm_90, 132 processors, 141.0 GiB, of which 140.0 GiB are free, at 0000:" pci       \
  ":00.0\n"
#define LINKS                                                                                      \
  "link        found       0 - 1: NV18\n"                                                          \
  "link        found       0 - 2: NV18\n"                                                          \
  "link        found       1 - 2: NV18\n"

static void check_cuda(const char *fault, bool well, const char *whole) {
  bool is_well;
  CHECK_STR(say(fault, "cuda", tsr_doctor_cuda, &is_well), whole);
  CHECK_INT(is_well, well);
}

static void test_devices(void) {
  check_cuda("one", true, tsr_arena_printf(texts, "%s%s", head(), DEVICE("0", "1b")));
  check_cuda(
      NULL, true,
      tsr_arena_printf(
          texts, "%s%s", head(), DEVICE("0", "1b") DEVICE("1", "1c") DEVICE("2", "1d") LINKS));
  check_cuda(
      "mixed", true,
      tsr_arena_printf(
          texts, "%s%s", head(),
          DEVICE("0", "1b") DEVICE("1", "1c") DEVICE(
              "2", "1d") "link        found       0 - 1: NV18\n"
                         "link        found       0 - 2: NV18\n"
                         "link        found       1 - 2: SYS, not into each other's memory\n"));
}

static void test_faults(void) {
  check_cuda(
      "no devices", true,
      tsr_arena_printf(
          texts,
          "%sdevice      missing     no device: it has gone\n"
          "                        → put it back\n",
          head()));
  check_cuda(
      "lost", false,
      tsr_arena_printf(
          texts, "%s%s", head(),
          DEVICE("0", "1b") "device      mismatched  1: its memory: it fell off the bus\n"
                            "                        → reboot\n" DEVICE("2", "1d") LINKS));
  check_cuda(
      "old device", false,
      tsr_arena_printf(
          texts, "%s%s", head(),
          "device      mismatched  0: Fake H200, sm_75, 132 processors, 141.0 GiB, of which 140.0 "
          "GiB are "
          "free, at 0000:1b:00.0; sm_75: too old\n"
          "                        → take another\n" DEVICE("1", "1c") DEVICE("2", "1d") LINKS));
  check_cuda(
      "no link", false,
      tsr_arena_printf(
          texts, "%s%s", head(),
          DEVICE("0", "1b") DEVICE("1", "1c") DEVICE(
              "2", "1d") "link        mismatched  the link between two devices: nobody knows\n"));
  check_cuda(
      "old runtime", false,
      tsr_arena_printf(
          texts,
          "cuda        mismatched  %s/libtessera-cuda.so, built with CUDA 13.0, runs with CUDA "
          "12.4\n"
          "                        → build again, with the toolkit whose libraries are found "
          "first\n",
          folder));
}

/* The process that asks goes on. */
static void test_apart(void) {
  check_cuda(
      "crash", false,
      "cuda        mismatched  its library crashes: Killed\n"
      "                        → install that library again, of one version with what it belongs "
      "to\n");
  check_cuda(
      "hang", false,
      "cuda        mismatched  no answer within 1 seconds\n"
      "                        → a driver or device that hangs: see the kernel's log (dmesg)\n");
  check_cuda("exit", false, "cuda        mismatched  it ended the process that asked\n");
}

static void check_nccl(const char *fault, bool well, const char *whole) {
  bool is_well;
  CHECK_STR(say(fault, "nccl", tsr_doctor_nccl, &is_well), whole);
  CHECK_INT(is_well, well);
}

static void test_nccl(void) {
  check_nccl(NULL, true, "nccl        found       2.28.9\n");
  check_nccl("no nccl", true, "nccl        missing     libnccl.so.2: not there\n");
  check_nccl(
      "no id", false,
      "nccl        mismatched  it makes no id of a group\n"
      "                        → look at the network\n");
  check_nccl(
      "old nccl", false,
      "nccl        mismatched  2.18.5, older than that of the build: 2.28.9\n"
      "                        → install that version, or build again with this one's header\n");
}

/* What it prints is a descriptor that --mesh takes. */
static void check_topology(const char *fault, int devices, const char *types) {
  tsr_text text = {0};
  tsr_mesh *mesh;
  char file[] = "/tmp/tessera-mesh-XXXXXX.textproto";
  tsr_diags *diags = tsr_diags_new(texts);
  setenv("FAKE_CUDA", fault, 1);
  CHECK(tsr_doctor_topology(texts, &text, diags));
  CHECK(text.data && strstr(text.data, types));
  int out = mkstemps(file, 10);
  CHECK(out >= 0 && write(out, text.data, text.length) == (ssize_t)text.length);
  close(out);
  CHECK(tsr_mesh_read(texts, file, (tsr_location){0}, &mesh, diags));
  CHECK_INT(mesh->devices, devices);
  unlink(file);
  tsr_text_free(&text);
}

static void test_topology(void) {
  check_topology("", 3, "dims: [ 1, 3 ] dim_types: [ RING, RING ]");
  check_topology("mixed", 3, "dims: [ 1, 3 ] dim_types: [ LINE, LINE ]");
  check_topology("one", 1, "dims: [ 1, 1 ]");
  setenv("FAKE_CUDA", "no devices", 1);
  tsr_text text = {0};
  tsr_diags *diags = tsr_diags_new(texts);
  CHECK(!tsr_doctor_topology(texts, &text, diags));
  CHECK(!text.data);
}

int main(int argc, char **argv) {
  if (argc != 2) return 2;
  texts = tsr_arena_new();
  folder = argv[1];
  setenv("TESSERA_PLUGIN_PATH", folder, 1);
  test_devices();
  test_faults();
  test_apart();
  test_nccl();
  test_topology();
  tsr_arena_free(texts);
  return check_done("doctor.devices");
}
