// A client of a torture round that takes its locks with redsync. tests/torture/peers.rs says what it is given and says.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"golang.org/x/sys/unix"
)

const (
	lease = time.Second
	wait  = 2 * time.Second
	step  = 5 * time.Millisecond
	// The pause after an extension that failed, and the time that one may take.
	again = 100 * time.Millisecond
	// An acquire that has not returned for so long after the end hangs.
	patience = 10 * time.Second
)

var (
	stop     atomic.Bool
	output   sync.Mutex
	resource *redis.Client
)

type task struct {
	sync   *redsync.Redsync
	key    string
	random *rand.Rand
	said   strings.Builder
}

func main() {
	if len(os.Args) != 7 {
		panic("usage: torture-redsync TOPOLOGY KEYS URL RESOURCE_URL NUMBER SEED")
	}
	logging.Disable()
	client := connect(os.Args[1], os.Args[3])
	options, err := redis.ParseURL(os.Args[4])
	check(err)
	// A command that is sent twice would be counted twice.
	options.ReadTimeout, options.MaxRetries = -1, -1
	resource = redis.NewClient(options)
	seed, err := strconv.ParseInt(os.Args[6], 10, 64)
	check(err)
	go listen()
	fmt.Println("ready")
	var ended []chan struct{}
	for number, key := range strings.Split(os.Args[2], ",") {
		task := &task{
			sync:   redsync.New(goredis.NewPool(client)),
			key:    key,
			random: rand.New(rand.NewSource(seed + int64(number))),
		}
		done := make(chan struct{})
		ended = append(ended, done)
		go func() {
			defer close(done)
			for cycle := 0; !stop.Load(); cycle++ {
				task.cycle(fmt.Sprintf("c%s.%d.%d", os.Args[5], number, cycle))
				say(task.said.String())
				task.said.Reset()
			}
		}()
	}
	for !stop.Load() {
		time.Sleep(step)
	}
	deadline := time.After(patience)
	hang := false
	for _, done := range ended {
		if !hang {
			select {
			case <-done:
				continue
			case <-deadline:
				hang = true
			}
		}
		select {
		case <-done:
		default:
			say("none hangs\n")
		}
	}
	say("stopped\n")
	select {}
}

func (t *task) cycle(holder string) {
	if t.isLong() {
		defer func() { time.Sleep(time.Duration(t.random.Intn(300)) * time.Millisecond) }()
	}
	mutex := t.sync.NewMutex("lock:"+t.key, redsync.WithExpiry(lease))
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	err := mutex.LockContext(ctx)
	cancel()
	if err != nil {
		t.say("none %s", kind(err))
		time.Sleep(step)
		return
	}
	from := now()
	until := from
	// The library says until when the lock is valid.
	isHeld := func() bool { return time.Now().Before(mutex.Until()) }
	seen := func() bool {
		asked := now()
		held := isHeld()
		if held {
			until = asked
		}
		return held
	}
	value := t.enter(holder, isHeld)
	held := t.keep(mutex, seen)
	if held {
		t.set(value + 1)
		if held = seen(); !held {
			t.say("doubt %s", t.key)
		}
	}
	t.say("hold %s %s 0 %d %d", t.key, holder, from, until)
	_, err = mutex.Unlock()
	end := "ok"
	if err != nil {
		end = kind(err)
	}
	if end == "busy" {
		// Somebody else has it.
		end = "lost"
	}
	t.say("end %s", end)
	why := ""
	switch {
	case strings.HasPrefix(t.key, "whole"):
		// The end of the lease is the plan.
		why = "untold"
	case !held:
		why = "until"
	case end == "lost":
		why = "release"
	case end != "ok":
		why = "untold"
	}
	if why != "" {
		t.say("loss %s %s %d %s", t.key, holder, now(), why)
	}
}

// Holds the lock for a while. Returns whether it was certain to the end.
func (t *task) keep(mutex *redsync.Mutex, seen func() bool) bool {
	steps := 0
	if t.isLong() {
		steps = 20 + t.random.Intn(580)
	} else if strings.HasPrefix(t.key, "whole") {
		steps = int(^uint(0) >> 1)
	}
	held := seen()
	var tried time.Time
	for ; steps > 0 && held && !stop.Load(); steps-- {
		time.Sleep(step)
		if t.isLong() && time.Until(mutex.Until()) < lease*2/3 && time.Since(tried) > again {
			// Extending is the caller's task. If it fails, the lock is valid as long as before.
			ctx, cancel := context.WithTimeout(context.Background(), again)
			_, _ = mutex.ExtendContext(ctx)
			cancel()
			tried = time.Now()
		}
		held = seen()
	}
	return held
}

func (t *task) isLong() bool { return strings.HasPrefix(t.key, "long") }

func (t *task) enter(holder string, isHeld func() bool) int64 {
	asked := now()
	keys := []string{"resource:" + t.key}
	answer, err := resource.Eval(context.Background(), os.Getenv("REGISTER_ENTER"), keys, "0", "checked").Slice()
	check(err)
	answered, sure := now(), 0
	if isHeld() {
		sure = 1
	}
	t.say("write %s %s 0 %s %d %d %d %d", t.key, holder, answer[1], answer[0], sure, asked, answered)
	value, err := strconv.ParseInt(answer[2].(string), 10, 64)
	check(err)
	return value
}

func (t *task) set(value int64) {
	keys := []string{"resource:" + t.key}
	check(resource.Eval(context.Background(), os.Getenv("REGISTER_SET"), keys, value).Err())
}

func (t *task) say(format string, words ...any) {
	fmt.Fprintf(&t.said, format+"\n", words...)
}

func kind(err error) string {
	var node *redsync.RedisError
	switch {
	case errors.Is(err, redsync.ErrLockAlreadyExpired):
		return "lost"
	case errors.As(err, &node):
		return "unavailable"
	}
	return "busy"
}

func connect(topology, address string) *redis.Client {
	if topology == "single" {
		options, err := redis.ParseURL(address)
		check(err)
		return redis.NewClient(options)
	}
	sentinel, err := url.Parse(address)
	check(err)
	password, _ := sentinel.User.Password()
	return redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName:    strings.Trim(sentinel.Path, "/"),
		SentinelAddrs: []string{sentinel.Host},
		Username:      sentinel.User.Username(),
		Password:      password,
	})
}

func say(lines string) {
	output.Lock()
	defer output.Unlock()
	_, err := os.Stdout.WriteString(lines)
	check(err)
}

func listen() {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		stop.Store(lines.Text() == "stop")
	}
	os.Exit(3)
}

func now() int64 {
	var time unix.Timespec
	check(unix.ClockGettime(unix.CLOCK_MONOTONIC, &time))
	return time.Nano()
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
