/* aotc_files.h: a file that is read through mappings of its parts: by POSIX, by Win32, or, on
 * systems without mappings, read into memory.  Paths are UTF-8. */
#ifndef AOTC_FILES_H
#define AOTC_FILES_H

#include "aotc_os.h"

#if defined(_WIN32)

#if !defined(WIN32_LEAN_AND_MEAN)
#define WIN32_LEAN_AND_MEAN
#endif
#include <windows.h>

#define AOTC_FILES_MAPPED 1

typedef struct aotc_file {
    HANDLE handle;
    HANDLE mapping;
    uint64_t bytes;
} aotc_file;

static inline void aotc_file_close(aotc_file *file)
{
    if (file->mapping != NULL) {
        CloseHandle(file->mapping);
    }
    CloseHandle(file->handle);
}

static inline HANDLE aotc_file_handle(const char *path)
{
    HANDLE handle = INVALID_HANDLE_VALUE;
    const int count = MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, path, -1, NULL, 0);
    wchar_t *const wide = count > 0 ? malloc((size_t)count * sizeof *wide) : NULL;
    if (wide != NULL && MultiByteToWideChar(CP_UTF8, 0, path, -1, wide, count) == count) {
        handle = CreateFileW(wide, GENERIC_READ, FILE_SHARE_READ | FILE_SHARE_DELETE, NULL,
                             OPEN_EXISTING, FILE_ATTRIBUTE_NORMAL, NULL);
    }
    free(wide);
    return handle;
}

/* 1 if it is a file that can be read; an empty one has no mapping. */
static inline int aotc_file_open(aotc_file *file, const char *path)
{
    LARGE_INTEGER size;
    file->mapping = NULL;
    file->handle = aotc_file_handle(path);
    if (file->handle == INVALID_HANDLE_VALUE) {
        return 0;
    }
    if (GetFileType(file->handle) != FILE_TYPE_DISK || !GetFileSizeEx(file->handle, &size)) {
        aotc_file_close(file);
        return 0;
    }
    file->bytes = (uint64_t)size.QuadPart;
    file->mapping = CreateFileMappingW(file->handle, NULL, PAGE_READONLY, 0, 0, NULL);
    return 1;
}

/* Bytes from `at` on, a multiple of 64 KiB; NULL if there is no room.  once: all of it is read now,
 * and given back. */
static inline void *aotc_file_map(const aotc_file *file, uint64_t at, size_t bytes, int once)
{
    (void)once;
    return file->mapping == NULL ? NULL
        : MapViewOfFile(file->mapping, FILE_MAP_READ, (DWORD)(at >> 32), (DWORD)(at & 0xffffffffu),
                        bytes);
}

static inline void aotc_file_unmap(void *memory, size_t bytes)
{
    (void)bytes;
    UnmapViewOfFile(memory);
}

#elif defined(__unix__) || defined(__APPLE__)

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define AOTC_FILES_MAPPED 1
#if !defined(MAP_POPULATE) /* Linux: fill in the pages at once instead of one by one */
#define MAP_POPULATE 0
#endif

typedef struct aotc_file {
    int number;
    uint64_t bytes;
} aotc_file;

static inline void aotc_file_close(aotc_file *file)
{
    close(file->number);
}

static inline int aotc_file_open(aotc_file *file, const char *path)
{
    struct stat about;
    /* of a pipe it would wait for a writer */
    file->number = open(path, O_RDONLY | O_NONBLOCK);
    if (file->number < 0) {
        return 0;
    }
    if (fstat(file->number, &about) != 0 || !S_ISREG(about.st_mode)) {
        aotc_file_close(file);
        return 0;
    }
    file->bytes = (uint64_t)about.st_size;
    return 1;
}

static inline void *aotc_file_map(const aotc_file *file, uint64_t at, size_t bytes, int once)
{
    void *const memory = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE | (once ? MAP_POPULATE : 0),
                              file->number, (off_t)at);
    return memory == MAP_FAILED ? NULL : memory;
}

static inline void aotc_file_unmap(void *memory, size_t bytes)
{
    munmap(memory, bytes);
}

#else

#include <stdio.h>

#define AOTC_FILES_MAPPED 0

typedef struct aotc_file {
    FILE *stream;
    uint64_t bytes;
} aotc_file;

static inline void aotc_file_close(aotc_file *file)
{
    fclose(file->stream);
}

static inline int aotc_file_open(aotc_file *file, const char *path)
{
    file->stream = fopen(path, "rb");
    if (file->stream == NULL) {
        return 0;
    }
    const long end = fseek(file->stream, 0, SEEK_END) == 0 ? ftell(file->stream) : -1;
    if (end < 0) {
        aotc_file_close(file);
        return 0;
    }
    file->bytes = (uint64_t)end;
    return 1;
}

static inline void *aotc_file_map(const aotc_file *file, uint64_t at, size_t bytes, int once)
{
    (void)once;
    void *const memory = aotc_allocate(bytes);
    if (memory != NULL && (fseek(file->stream, (long)at, SEEK_SET) != 0 ||
                           fread(memory, 1, bytes, file->stream) != bytes)) {
        aotc_free(memory);
        return NULL;
    }
    return memory;
}

static inline void aotc_file_unmap(void *memory, size_t bytes)
{
    (void)bytes;
    aotc_free(memory);
}

#endif
#endif
