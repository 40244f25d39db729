package main

import (
	"encoding/binary"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// The file that every holder of the hot key writes: who is inside, who was inside last, and when that ended.
type register struct {
	file *os.File
	me   uint64
}

func openRegister(path string) *register {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	check(err)
	return &register{file, uint64(os.Getpid())}
}

// Whether somebody else was inside; and for how long nobody was, if another process was inside last.
func (r *register) enter() (overlap bool, gap time.Duration, known bool) {
	inside, last, ended := r.read()
	if last != 0 && last != r.me {
		gap, known = time.Duration(monotonic()-ended), true
	}
	var bytes [8]byte
	binary.LittleEndian.PutUint64(bytes[:], r.me)
	_, err := r.file.WriteAt(bytes[:], 0)
	check(err)
	return inside != 0, gap, known
}

// Whether somebody else has been inside meanwhile.
func (r *register) leave() (overlap bool) {
	inside, _, _ := r.read()
	var bytes [24]byte
	binary.LittleEndian.PutUint64(bytes[8:], r.me)
	binary.LittleEndian.PutUint64(bytes[16:], monotonic())
	_, err := r.file.WriteAt(bytes[:], 0)
	check(err)
	return inside != r.me
}

func (r *register) read() (inside, last, ended uint64) {
	var bytes [24]byte
	_, err := r.file.ReadAt(bytes[:], 0)
	check(err)
	return binary.LittleEndian.Uint64(bytes[:]), binary.LittleEndian.Uint64(bytes[8:]), binary.LittleEndian.Uint64(bytes[16:])
}

func monotonic() uint64 {
	var time unix.Timespec
	check(unix.ClockGettime(unix.CLOCK_MONOTONIC, &time))
	return uint64(time.Nano())
}
