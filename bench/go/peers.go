package main

import (
	"context"
	"math"
	"net/url"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

// 30 s for every library.
const lease = 30 * time.Second

// Waits without a limit; what it returns releases.
type lock func() func()

// Connects with the settings that docs/benchmarks.md tells.
func connect(peer, address string) func(key string) lock {
	switch peer {
	case "redsync":
		return connectRedsync(address)
	case "redislock":
		return connectRedislock(address)
	case "rueidislock":
		return connectRueidislock(address)
	}
	panic("no peer is called " + peer)
}

// The pause between two attempts is the default: by chance, from 50 ms to 250 ms.
func connectRedsync(address string) func(string) lock {
	sync := redsync.New(goredis.NewPool(client(address)))
	return func(key string) lock {
		return func() func() {
			mutex := sync.NewMutex(key, redsync.WithExpiry(lease), redsync.WithTries(math.MaxInt32))
			check(mutex.Lock())
			return func() {
				_, err := mutex.Unlock()
				check(err)
			}
		}
	}
}

// By default it does not wait; the pause is that of its example: 100 ms.
func connectRedislock(address string) func(string) lock {
	locker := redislock.New(client(address))
	options := &redislock.Options{RetryStrategy: redislock.LinearBackoff(100 * time.Millisecond)}
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	_ = cancel // it lasts as long as the process
	return func(key string) lock {
		return func() func() {
			held, err := locker.Obtain(ctx, key, lease, options)
			check(err)
			return func() { check(held.Release(context.Background())) }
		}
	}
}

// The server tells it when a key changes, so it has no pause. The settings are those of its README for one server.
func connectRueidislock(address string) func(string) lock {
	server, err := url.Parse(address)
	check(err)
	locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption:   rueidis.ClientOption{InitAddress: []string{server.Host}},
		KeyMajority:    1,
		NoLoopTracking: true,
		KeyValidity:    lease,
	})
	check(err)
	return func(key string) lock {
		return func() func() {
			_, cancel, err := locker.WithContext(context.Background(), key)
			check(err)
			return cancel
		}
	}
}

func client(address string) *redis.Client {
	options, err := redis.ParseURL(address)
	check(err)
	client := redis.NewClient(options)
	check(client.Ping(context.Background()).Err())
	return client
}
