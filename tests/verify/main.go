// Command verify judges histories of locks and registers by porcupine, a checker of linearizability that nobody of this
// project wrote. README.md has the form of the histories and what the models demand.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// header is the first line of a history.
type header struct {
	History string `json:"history"`
	Model   string `json:"model"`
	// Judged is what the project's own checker said: possible, impossible or undecided.
	Judged string `json:"judged"`
}

// operation is any other line. Return is nil if nobody knows when, or whether, the operation took effect.
type operation struct {
	Owner    json.RawMessage `json:"owner"`
	Op       string          `json:"op"`
	Token    uint64          `json:"token"`
	Accepted bool            `json:"accepted"`
	Call     int64           `json:"call"`
	Return   *int64          `json:"return"`
}

// input is what a model sees of an operation.
type input struct {
	owner    string
	op       string
	token    uint64
	accepted bool
}

func (in input) String() string {
	switch in.op {
	case "write":
		if in.accepted {
			return fmt.Sprintf("write %d by %s: accepted", in.token, in.owner)
		}
		return fmt.Sprintf("write %d by %s: refused", in.token, in.owner)
	case "take":
		return fmt.Sprintf("take by %s: token %d", in.owner, in.token)
	}
	return in.op + " by " + in.owner
}

// over is an operation of ours: all others have been called. What is unknown until then has had no effect.
const over = "over"

type lockState struct {
	holder string
	token  uint64
	over   bool
}

var lock = porcupine.Model{
	Init: func() interface{} { return lockState{} },
	Step: func(state, in, _ interface{}) (bool, interface{}) {
		now, asked := state.(lockState), in.(input)
		next := now
		switch asked.op {
		case over:
			next.over = true
			return true, next
		case "take", "may-take":
			if asked.op == "may-take" && now.over {
				return true, now
			}
			next.holder = asked.owner
			if asked.token > 0 {
				next.token = asked.token
			}
			return now.holder == "" && (asked.token == 0 || asked.token > now.token), next
		case "end", "may-end":
			if asked.op == "may-end" && now.over {
				return true, now
			}
			next.holder = ""
			return now.holder == asked.owner, next
		case "refused":
			return now.holder != "", now
		}
		return false, now
	},
	DescribeOperation: func(in, _ interface{}) string { return in.(input).String() },
	DescribeState: func(state interface{}) string {
		now := state.(lockState)
		if now.holder == "" {
			return fmt.Sprintf("free after token %d", now.token)
		}
		return fmt.Sprintf("held by %s, token %d", now.holder, now.token)
	},
}

var register = porcupine.Model{
	Init: func() interface{} { return uint64(0) },
	Step: func(state, in, _ interface{}) (bool, interface{}) {
		highest, asked := state.(uint64), in.(input)
		switch {
		case asked.op == over:
			return true, highest
		case asked.op != "write":
			return false, highest
		case asked.accepted:
			return asked.token >= highest, asked.token
		}
		return asked.token < highest, highest
	},
	DescribeOperation: func(in, _ interface{}) string { return in.(input).String() },
	DescribeState:     func(state interface{}) string { return fmt.Sprintf("token %d", state) },
}

func modelOf(name string) (porcupine.Model, error) {
	switch name {
	case "lock":
		return lock, nil
	case "register":
		return register, nil
	}
	return porcupine.Model{}, fmt.Errorf("no model is called %q", name)
}

func read(path string) (header, []porcupine.Operation, error) {
	var about header
	file, err := os.Open(path)
	if err != nil {
		return about, nil, err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	if !lines.Scan() {
		return about, nil, errors.Join(errors.New("it is empty"), lines.Err())
	}
	if err := json.Unmarshal(lines.Bytes(), &about); err != nil {
		return about, nil, fmt.Errorf("its header: %w", err)
	}
	var last int64
	var read []operation
	for lines.Scan() {
		var op operation
		if err := json.Unmarshal(lines.Bytes(), &op); err != nil {
			return about, nil, fmt.Errorf("line %d: %w", len(read)+2, err)
		}
		last = max(last, op.Call)
		if op.Return != nil {
			last = max(last, *op.Return)
		}
		read = append(read, op)
	}
	read = append(read, operation{Op: over, Call: last + 1})
	// Owners get rows of their own in a drawing.
	rows := map[string]int{}
	var history []porcupine.Operation
	for _, op := range read {
		until := last + 2
		if op.Return != nil {
			until = *op.Return
		}
		owner := strings.Trim(string(op.Owner), `"`)
		if _, known := rows[owner]; !known {
			rows[owner] = len(rows)
		}
		history = append(history, porcupine.Operation{
			ClientId: rows[owner],
			Input:    input{owner, op.Op, op.Token, op.Accepted},
			Call:     op.Call,
			Return:   until,
		})
	}
	return about, history, lines.Err()
}

func judge(path, draw string, patience time.Duration) (judged, ours string, err error) {
	about, history, err := read(path)
	if err != nil {
		return "", "", err
	}
	model, err := modelOf(about.Model)
	if err != nil {
		return "", "", err
	}
	result, info := porcupine.CheckOperationsVerbose(model, history, patience)
	switch result {
	case porcupine.Ok:
		judged = "possible"
	case porcupine.Illegal:
		judged = "impossible"
	default:
		judged = "undecided"
	}
	if draw != "" && result == porcupine.Illegal {
		picture := filepath.Join(draw, strings.TrimSuffix(filepath.Base(path), ".jsonl")+".html")
		err = porcupine.VisualizePath(model, info, picture)
	}
	return judged, about.Judged, err
}

func main() {
	draw := flag.String("draw", "", "a folder for drawings of the histories that are impossible")
	patience := flag.Duration("patience", 60*time.Second, "how long one history may take")
	flag.Parse()
	var paths []string
	for _, argument := range flag.Args() {
		found, err := filepath.Glob(filepath.Join(argument, "*.jsonl"))
		if err != nil || len(found) == 0 {
			found = []string{argument}
		}
		paths = append(paths, found...)
	}
	if len(paths) == 0 {
		fmt.Fprintln(os.Stderr, "usage: verify [-draw FOLDER] [-patience 30s] FILE-OR-FOLDER…")
		os.Exit(2)
	}
	if *draw != "" {
		if err := os.MkdirAll(*draw, 0o755); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
	}
	sort.Strings(paths)
	count := map[string]int{}
	agreed, disagreed := 0, 0
	for _, path := range paths {
		judged, ours, err := judge(path, *draw, *patience)
		if err != nil {
			fmt.Printf("FAILED %s: %v\n", path, err)
			disagreed++
			continue
		}
		count[judged]++
		// Our own checker may give up. Then porcupine's word counts.
		if judged == ours && judged != "undecided" || ours == "undecided" && judged == "possible" {
			agreed++
			continue
		}
		fmt.Printf("FAILED %s: porcupine says %s, the project's own checker says %s\n", path, judged, ours)
		disagreed++
	}
	fmt.Printf("%d histories: %d possible, %d impossible, %d undecided\n",
		len(paths), count["possible"], count["impossible"], count["undecided"])
	fmt.Printf("verify: %d passed, %d failed\n", agreed, disagreed)
	if disagreed > 0 {
		os.Exit(1)
	}
}
