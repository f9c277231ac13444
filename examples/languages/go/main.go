// Classifies digit images: classify digits_weights.bin images.f32, one digit per line.
//
// CGO_CFLAGS has -I and CGO_LDFLAGS has -L of the bundle's folder, where `make static` has run.
package main

/*
#cgo LDFLAGS: -ldigits -lm -pthread
#include <stdlib.h>
#include "digits.h"
*/
import "C"

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"unsafe"
)

// Model is an opened model: its weights, its arena for up to so many images, a context over both.
// All of them are C's memory, since they point to each other.
type Model struct {
	weights *C.digits_weights
	context *C.digits_context
	arena   unsafe.Pointer
}

func check(status C.aotc_status, what string) error {
	if status == C.AOTC_OK {
		return nil
	}
	return fmt.Errorf("%s: %s", what, C.GoString(C.digits_strerror(status)))
}

// Open maps the weights; Close gives all memory back.
func Open(path string, batch int) (*Model, error) {
	bytes := (C.digits_arena_size(C.int64_t(batch), 1) + 63) / 64 * 64
	m := &Model{
		weights: (*C.digits_weights)(C.calloc(1, C.sizeof_digits_weights)),
		context: (*C.digits_context)(C.calloc(1, C.sizeof_digits_context)),
		arena:   C.aligned_alloc(64, bytes),
	}
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	err := check(C.digits_weights_open(m.weights, name), path)
	if err == nil {
		err = check(C.digits_init(m.context, m.weights, m.arena, bytes, nil), "init")
	}
	if err != nil {
		m.Close()
		return nil, err
	}
	return m, nil
}

// Run classifies images of 64 pixels each, which lie one behind the other.
func (m *Model) Run(images []float32) ([]int64, error) {
	batch := len(images) / 64
	if batch == 0 {
		return nil, nil
	}
	logits, digits := make([]float32, batch*10), make([]int64, batch)
	status := C.digits_run(m.context, C.int64_t(batch), (*C.float)(&images[0]),
		(*C.float)(&logits[0]), (*C.int64_t)(&digits[0]))
	return digits, check(status, "run")
}

func (m *Model) Close() {
	C.digits_weights_close(m.weights)
	C.free(unsafe.Pointer(m.weights))
	C.free(unsafe.Pointer(m.context))
	C.free(m.arena)
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintf(os.Stderr, "usage: %s digits_weights.bin images.f32\n", os.Args[0])
		os.Exit(2)
	}
	data, err := os.ReadFile(os.Args[2])
	must(err)
	images := make([]float32, len(data)/4)
	for i := range images {
		images[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
	}
	model, err := Open(os.Args[1], len(images)/64)
	must(err)
	defer model.Close()
	digits, err := model.Run(images)
	must(err)
	for _, digit := range digits {
		fmt.Println(digit)
	}
}
