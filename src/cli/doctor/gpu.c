// SPDX-License-Identifier: Apache-2.0
/* NVIDIA's GPUs: the driver, the plugin that runs on it, the devices, how they are linked, and
 * NCCL. */
#include "device/cuda/plugin_abi.h"
#include "cli/doctor/doctor.h"
#include "cli/doctor/findings.h"
#include <dlfcn.h>
#include <string.h>

/* 13020: "13.2" */
static const char *cuda_version(tsr_arena *arena, int number) {
  return tsr_arena_printf(arena, "%d.%d", number / 1000, number % 1000 / 10);
}

/* The reason, and after a newline what to do about it. */
static void
find_fault(tsr_findings *f, const char *layer, tsr_finding finding, const char *before, char *why) {
  char *remedy = strchr(why, '\n');
  if (remedy) *remedy++ = 0;
  tsr_find(f, layer, finding, "%s%s", before, why);
  if (remedy) tsr_find_remedy(f, remedy);
}

/* ---- the driver, without any of CUDA's libraries ---- */

void tsr_doctor_driver(tsr_findings *f) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    tsr_find(f, "driver", TSR_MISSING, "%s", dlerror());
    tsr_find_remedy(
        f, "for NVIDIA GPUs: install the driver; a container needs the runtime that hands it on");
    return;
  }
  int (*init)(unsigned), (*get_version)(int *), version = 0;
  *(void **)&init = dlsym(library, "cuInit");
  *(void **)&get_version = dlsym(library, "cuDriverGetVersion");
  if (!init || !get_version || get_version(&version)) {
    tsr_find(f, "driver", TSR_MISMATCHED, "libcuda.so.1 is no CUDA driver");
    tsr_find_remedy(f, "remove stubs and toolkits from LD_LIBRARY_PATH");
    return;
  }
  int error = init(0);
  const char *knows = tsr_arena_printf(f->arena, "up to CUDA %s", cuda_version(f->arena, version));
  if (!error) tsr_find(f, "driver", TSR_FOUND, "%s", knows);
  else tsr_find(f, "driver", TSR_MISMATCHED, "%s, but cuInit returns %d", knows, error);
}

/* ---- the plugin and its devices ---- */

static void find_links(tsr_findings *f, const tsr_cuda_table *table, int devices) {
  char why[TSR_CUDA_WHY_BYTES];
  tsr_cuda_link link;
  for (int a = 0; a < devices; a++)
    for (int b = a + 1; b < devices; b++) {
      if (!table->link(a, b, &link, why)) {
        find_fault(f, "link", TSR_MISMATCHED, "", why);
        return;
      }
      tsr_find(
          f, "link", TSR_FOUND, "%d - %d: %s%s", a, b, link.path,
          link.peers ? "" : ", not into each other's memory");
    }
}

static void find_devices(tsr_findings *f, const tsr_cuda_table *table, int devices) {
  char why[TSR_CUDA_WHY_BYTES];
  for (int i = 0; i < devices; i++) {
    tsr_cuda_device d;
    const char *before = tsr_arena_printf(f->arena, "%d: ", i);
    if (!table->describe(i, &d, why)) {
      find_fault(f, "device", TSR_MISMATCHED, before, why);
      continue;
    }
    before = tsr_arena_printf(
        f->arena, "%s%s, sm_%d%d, %d processors, %s, of which %s are free, at %s", before, d.name,
        d.major, d.minor, d.processors, tsr_text_bytes(d.bytes).text,
        tsr_text_bytes(d.bytes_free).text, d.pci);
    if (table->fits(&d, why)) tsr_find(f, "device", TSR_FOUND, "%s", before);
    else find_fault(f, "device", TSR_MISMATCHED, tsr_arena_printf(f->arena, "%s; ", before), why);
  }
}

/* The runtime that is loaded may be another one than that of the headers. */
static bool runtime_fits(tsr_findings *f, const tsr_cuda_table *table, const char *path) {
  int driver, runtime;
  table->versions(&driver, &runtime);
  const char *built = cuda_version(f->arena, table->built_cuda),
             *loaded = cuda_version(f->arena, runtime);
  bool fits = runtime / 1000 == table->built_cuda / 1000;
  tsr_find(
      f, "cuda", fits ? TSR_FOUND : TSR_MISMATCHED, "%s, built with CUDA %s, runs with CUDA %s",
      path, built, loaded);
  if (!fits) tsr_find_remedy(f, "build again, with the toolkit whose libraries are found first");
  return fits;
}

static const tsr_cuda_table *find_plugin(tsr_findings *f, const char **ret_path) {
  const char *tried;
  const tsr_cuda_table *table = tsr_cuda_find(f->arena, ret_path, &tried);
  if (table) return table;
  tsr_find(f, "cuda", TSR_MISSING, "no libtessera-cuda.so; tried:%s", tried);
  tsr_find_remedy(
      f, "for NVIDIA GPUs: install the CUDA toolkit, then scripts/build -Dcuda=enabled");
  return NULL;
}

void tsr_doctor_cuda(tsr_findings *f) {
  const char *path;
  char why[TSR_CUDA_WHY_BYTES];
  int devices;
  const tsr_cuda_table *table = find_plugin(f, &path);
  if (!table || !runtime_fits(f, table, path)) return;
  if (!table->count(&devices, why)) {
    find_fault(f, "device", TSR_MISSING, "", why);
    return;
  }
  find_devices(f, table, devices);
  find_links(f, table, devices);
}

/* ---- NCCL ---- */

static const char *nccl_version(tsr_arena *arena, int number) {
  return tsr_arena_printf(arena, "%d.%d.%d", number / 10000, number % 10000 / 100, number % 100);
}

void tsr_doctor_nccl(tsr_findings *f) {
  const char *path, *tried;
  char why[TSR_CUDA_WHY_BYTES], id[TSR_CUDA_UNIQUE_BYTES];
  int version = 0;
  const tsr_cuda_table *table = tsr_cuda_find(f->arena, &path, &tried);
  if (!table) {
    tsr_find(f, "nccl", TSR_MISSING, "asked through the cuda plugin, which is missing");
    return;
  }
  if (!table->nccl(&version, id, why)) {
    find_fault(f, "nccl", version ? TSR_MISMATCHED : TSR_MISSING, "", why);
    return;
  }
  bool fits = version >= table->built_nccl;
  tsr_find(
      f, "nccl", fits ? TSR_FOUND : TSR_MISMATCHED, "%s%s%s", nccl_version(f->arena, version),
      fits ? "" : ", older than that of the build: ",
      fits ? "" : nccl_version(f->arena, table->built_nccl));
  if (!fits) tsr_find_remedy(f, "install that version, or build again with this one's header");
}

/* ---- the descriptor ---- */

/* The fewest NVLinks between any two; 0: a pair has none. */
static bool fewest_links(const tsr_cuda_table *table, int devices, int *ret_links, char *why) {
  tsr_cuda_link link;
  *ret_links = devices > 1 ? INT32_MAX : 0;
  for (int a = 0; a < devices; a++)
    for (int b = a + 1; b < devices; b++) {
      if (!table->link(a, b, &link, why)) return false;
      if (link.nvlinks < *ret_links) *ret_links = link.nvlinks;
    }
  return true;
}

static bool fail_topology(tsr_diags *diags, char *why) {
  char *remedy = strchr(why, '\n');
  if (remedy) *remedy++ = 0;
  tsr_diag_failure(diags, TSR_NOWHERE, "no topology of GPUs: %s", why);
  if (remedy) tsr_diag_hint(diags, "%s", remedy);
  return false;
}

bool tsr_doctor_topology(tsr_arena *arena, tsr_text *text, tsr_diags *diags) {
  const char *path, *tried;
  char why[TSR_CUDA_WHY_BYTES];
  int devices = 0, links;
  const tsr_cuda_table *table = tsr_cuda_find(arena, &path, &tried);
  if (!table) {
    tsr_diag_failure(diags, TSR_NOWHERE, "no topology of GPUs: no libtessera-cuda.so");
    tsr_diag_hint(diags, "tried:%s", tried);
    return false;
  }
  if (!table->count(&devices, why) || !fewest_links(table, devices, &links, why))
    return fail_topology(diags, why);
  tsr_text_add(
      text,
      "# The %d GPU%s of this host, %s.\n\n"
      "mesh_descriptors {\n"
      "  name: \"HERE\"\n"
      "  arch: CUDA\n"
      "  device_topology { dims: [ 1, %d ] dim_types: [ %s, %s ] }\n"
      "  host_topology { dims: [ 1, 1 ] }\n"
      "  channels { count: %d policy: RELAXED }\n"
      "}\n\n"
      "top_level_instance { mesh { mesh_descriptor: \"HERE\" mesh_id: 0 } }\n",
      devices, devices == 1 ? "" : "s",
      links ? "each pair over NVLink" : "not all of them over NVLink", devices,
      links ? "RING" : "LINE", links ? "RING" : "LINE", links ? links : 1);
  return true;
}
