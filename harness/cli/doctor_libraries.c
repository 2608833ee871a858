/* What assay can use beside itself: GPU driver and toolkit, vendor libraries, tools, disk. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "as_file.h"
#include "cli/doctor.h"

/* Opens the first of `names` (NULL-terminated) that there is; `why` says what dlopen said of the
 * first one where there is none. Nothing is closed again: vendor libraries start threads and keep
 * memory, and the process ends soon. */
static void *open_library(const char *const *names, const char **found, char *why, size_t size)
{
    why[0] = '\0';
    for (; *names != NULL; names++) {
        void *library = dlopen(*names, RTLD_NOW | RTLD_LOCAL);
        *found = *names;
        if (library != NULL)
            return library;
        const char *said = dlerror();
        if (why[0] == '\0')
            snprintf(why, size, "%s", said != NULL ? said : "dlopen fails without a reason");
    }
    return NULL;
}

/* ---- GPU ---------------------------------------------------------------------------------- */

/* The few entry points that the doctor asks; CUresult and CUdevice are ints. */
struct driver {
    int (*init)(unsigned flags);
    int (*version)(int *version);
    int (*count)(int *count);
    int (*get)(int *device, int ordinal);
    int (*name)(char *name, int size, int device);
    int (*memory)(size_t *bytes, int device);
    int (*attribute)(int *value, int attribute, int device);
};

/* A symbol as a function pointer, without a cast that C does not define. */
static bool load(void *library, const char *name, void *function)
{
    void *symbol = dlsym(library, name);
    memcpy(function, &symbol, sizeof symbol);
    return symbol != NULL;
}

/* cudaDevAttrComputeCapabilityMajor and Minor. */
enum { CAPABILITY_MAJOR = 75, CAPABILITY_MINOR = 76 };

static void look_at_devices(struct as_findings *all, const struct driver *driver)
{
    int version = 0, count = 0;
    int code = driver->init(0);
    driver->version(&version);
    if (code != 0) {
        as_finding_add(all, "gpu", "driver", AS_MISSING,
                       "libcuda.so.1 (CUDA %d.%d) does not start: cuInit says %d%s", version / 1000,
                       version % 1000 / 10, code, code == 100 ? ", no device" : "");
        return;
    }
    driver->count(&count);
    as_finding_add(all, "gpu", "driver", AS_FOUND, "CUDA %d.%d, %d device%s", version / 1000,
                   version % 1000 / 10, count, count == 1 ? "" : "s");
    for (int i = 0; i < count && i < 16; i++) {
        char name[96] = "?", label[32];
        int device = 0, major = 0, minor = 0;
        size_t bytes = 0;
        if (driver->get(&device, i) != 0)
            continue;
        driver->name(name, sizeof name, device);
        driver->memory(&bytes, device);
        driver->attribute(&major, CAPABILITY_MAJOR, device);
        driver->attribute(&minor, CAPABILITY_MINOR, device);
        snprintf(label, sizeof label, "device %d", i);
        as_finding_add(all, "gpu", label, AS_FOUND, "%s, sm_%d%d, %.1f GiB", name, major, minor,
                       (double)bytes / 0x1p30);
    }
}

static void look_at_driver(struct as_findings *all)
{
    static const char *const names[] = {"libcuda.so.1", NULL};
    const char *found;
    char why[256];
    struct driver driver;
    void *library = open_library(names, &found, why, sizeof why);
    if (library == NULL) {
        snprintf(
            as_finding_add(all, "gpu", "driver", AS_MISSING, "no NVIDIA driver: %s", why)->advice,
            240, "the CPU backend needs none; `--set backend=cuda` will be refused");
        return;
    }
    bool complete = load(library, "cuInit", &driver.init) &&
                    load(library, "cuDriverGetVersion", &driver.version) &&
                    load(library, "cuDeviceGetCount", &driver.count) &&
                    load(library, "cuDeviceGet", &driver.get) &&
                    load(library, "cuDeviceGetName", &driver.name) &&
                    load(library, "cuDeviceTotalMem_v2", &driver.memory) &&
                    load(library, "cuDeviceGetAttribute", &driver.attribute);
    if (complete)
        look_at_devices(all, &driver);
    else
        as_finding_add(all, "gpu", "driver", AS_MISSING, "libcuda.so.1 lacks functions: %s",
                       "it is too old, or a stub");
}

/* ---- shared objects that are opened at run time -------------------------------------------- */

static const struct library {
    const char *topic, *name, *purpose, *package;
    const char *names[5];
} libraries[] = {
    {"gpu",
     "CUPTI",
     "GPU times of launches",
     "the CUDA toolkit",
     {"libcupti.so.13", "libcupti.so.12", "libcupti.so"}},
    {"gpu",
     "NVML",
     "GPU clocks, power and utilization",
     "the NVIDIA driver",
     {"libnvidia-ml.so.1"}},
    {"gpu",
     "cuBLASLt",
     "the vendor's matrix products",
     "the CUDA toolkit",
     {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"}},
    {"libraries",
     "OpenBLAS",
     "a vendor rung of linear",
     "Debian's libopenblas0",
     {"libopenblas.so.0", "libopenblas.so"}},
    {"libraries",
     "oneDNN",
     "a vendor rung of linear",
     "Debian's libdnnl2",
     {"libdnnl.so.3", "libdnnl.so.2", "libdnnl.so"}},
};

static void look_at_libraries(struct as_findings *all, const char *topic)
{
    for (size_t i = 0; i < sizeof libraries / sizeof libraries[0]; i++) {
        const struct library *l = &libraries[i];
        const char *found;
        char why[256];
        if (strcmp(l->topic, topic) != 0)
            continue;
        if (open_library(l->names, &found, why, sizeof why) != NULL) {
            as_finding_add(all, topic, l->name, AS_FOUND, "%s, for %s", found, l->purpose);
            continue;
        }
        snprintf(
            as_finding_add(all, topic, l->name, AS_MISSING, "no %s: %s", l->purpose, why)->advice,
            240, "it comes with %s", l->package);
    }
}

/* ---- programs ----------------------------------------------------------------------------- */

/* The first executable file of that name in PATH. */
static bool find_program(const char *name, char *path, size_t size)
{
    const char *folders = getenv("PATH");
    while (folders != NULL && *folders != '\0') {
        size_t length = strcspn(folders, ":");
        int written = snprintf(path, size, "%.*s/%s", (int)length, folders, name);
        if (length > 0 && written > 0 && (size_t)written < size && access(path, X_OK) == 0)
            return true;
        folders += length + (folders[length] == ':');
    }
    return false;
}

static void look_at_programs(struct as_findings *all)
{
    char path[512];
    if (find_program("nvcc", path, sizeof path) ||
        (snprintf(path, sizeof path, "/usr/local/cuda/bin/nvcc") > 0 && access(path, X_OK) == 0))
        as_finding_add(all, "gpu", "toolkit", AS_FOUND, "%s", path);
    else
        as_finding_add(all, "gpu", "toolkit", AS_MISSING,
                       "no nvcc in PATH or /usr/local/cuda: the CUDA backend cannot be built here");
}

static void look_at_tools(struct as_findings *all)
{
    char path[512];
    int (*version)(unsigned *, unsigned *, unsigned *);
    unsigned major = 0, minor = 0, release = 0;
    if (find_program("gnuplot", path, sizeof path))
        as_finding_add(all, "tools", "gnuplot", AS_FOUND, "%s", path);
    else
        snprintf(
            as_finding_add(all, "tools", "gnuplot", AS_MISSING, "not in PATH: no plots")->advice,
            240, "apt-get install gnuplot-nox");
    /* The library that this program is linked with; reports/ alone sees its headers. */
    if (load(RTLD_DEFAULT, "H5get_libversion", &version) && version(&major, &minor, &release) >= 0)
        as_finding_add(all, "tools", "HDF5", AS_FOUND, "%u.%u.%u", major, minor, release);
    else
        as_finding_add(all, "tools", "HDF5", AS_MISSING, "its version cannot be asked");
}

/* ---- disk --------------------------------------------------------------------------------- */

static void look_at_space(struct as_findings *all, const char *name, const char *path)
{
    struct statvfs disk;
    if (statvfs(path, &disk) != 0) {
        as_finding_add(all, "disk", name, AS_MISSING, "%s: %s", path, strerror(errno));
        return;
    }
    double free_bytes = (double)disk.f_bavail * (double)disk.f_frsize;
    struct as_finding *finding =
        as_finding_add(all, "disk", name, free_bytes < 0x1p30 ? AS_DISTURBS : AS_FOUND,
                       "%s, %.1f GiB free", path, free_bytes / 0x1p30);
    if (finding->state == AS_DISTURBS)
        snprintf(finding->advice, sizeof finding->advice,
                 "a run writes its spools here, some 100 MB for each traced pass");
}

static void look_at_disk(struct as_findings *all)
{
    char path[4096], folder[4096];
    struct as_error error = {0};
    if (as_cache_path(path, sizeof path, "probe", &error) != 0) {
        snprintf(as_finding_add(all, "disk", "cache folder", AS_MISSING, "%.380s", error.message)
                     ->advice,
                 240, "without it checks and ceilings are made anew by every run");
    } else {
        snprintf(folder, sizeof folder, "%s", path);
        *strrchr(folder, '/') = '\0';
        if (as_write_file(path, "", 0, &error) != 0)
            as_finding_add(all, "disk", "cache folder", AS_MISSING, "%.380s", error.message);
        else
            look_at_space(all, "cache folder", folder);
        unlink(path);
    }
    if (getcwd(folder, sizeof folder) != NULL)
        look_at_space(all, "this folder", folder);
}

void as_doctor_libraries(struct as_findings *all)
{
    look_at_driver(all);
    look_at_programs(all);
    look_at_libraries(all, "gpu");
    look_at_libraries(all, "libraries");
    look_at_tools(all);
    look_at_disk(all);
}
