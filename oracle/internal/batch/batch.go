// Package batch turns functions into verbs that read cases from standard input and write answers to standard output.
package batch

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// Answer is what a verb does with one case. An error is answered, not fatal.
type Answer func(input []byte) (any, error)

// Verb declares its flags; the function it returns is called once they are parsed.
type Verb func(flags *flag.FlagSet) func() (Answer, error)

// Plain makes a verb without flags from a typed function.
func Plain[In, Out any](answer func(In) (Out, error)) Verb {
	return func(*flag.FlagSet) func() (Answer, error) {
		return func() (Answer, error) { return Typed(answer), nil }
	}
}

// Typed decodes the case for a typed function.
func Typed[In, Out any](answer func(In) (Out, error)) Answer {
	return func(input []byte) (any, error) {
		var in In
		if err := json.Unmarshal(input, &in); err != nil {
			return nil, fmt.Errorf("reading the case: %w", err)
		}
		return answer(in)
	}
}

// Main runs the verb that the command line names, and exits.
func Main(verbs map[string]Verb) {
	names := []string{}
	for name := range verbs {
		names = append(names, name)
	}
	slices.Sort(names)
	if len(os.Args) < 2 || verbs[os.Args[1]] == nil {
		fmt.Fprintf(os.Stderr, "usage: %s <%s> [flags] < cases.jsonl > answers.jsonl\n", os.Args[0], strings.Join(names, "|"))
		os.Exit(2)
	}
	flags := flag.NewFlagSet(os.Args[1], flag.ExitOnError)
	prepare := verbs[os.Args[1]](flags)
	parallel := flags.Int("parallel", 1, "how many cases to answer at a time")
	_ = flags.Parse(os.Args[2:])
	answer, err := prepare()
	if err == nil && *parallel > 1 {
		err = runParallel(answer, *parallel, os.Stdin, os.Stdout)
	} else if err == nil {
		err = run(answer, os.Stdin, os.Stdout)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "oracle %s: %v\n", os.Args[1], err)
		os.Exit(1)
	}
}

func run(answer Answer, in io.Reader, out io.Writer) error {
	lines := bufio.NewReaderSize(in, 1<<20)
	writer := bufio.NewWriterSize(out, 1<<20)
	encoder := json.NewEncoder(writer)
	encoder.SetEscapeHTML(false)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			if err := encoder.Encode(guarded(answer, line)); err != nil {
				return err
			}
			// A caller that waits for this answer before it sends more must not wait for ever.
			if lines.Buffered() == 0 {
				if err := writer.Flush(); err != nil {
					return err
				}
			}
		}
		if err == io.EOF {
			return writer.Flush()
		}
		if err != nil {
			return err
		}
	}
}

// runParallel answers several cases at a time, in their order: for verbs that wait more than they compute.
func runParallel(answer Answer, parallel int, in io.Reader, out io.Writer) error {
	underWay := make(chan chan any, parallel)
	var failed error
	go func() {
		defer close(underWay)
		lines := bufio.NewReaderSize(in, 1<<20)
		for {
			line, err := lines.ReadBytes('\n')
			if len(line) > 0 {
				answered := make(chan any, 1)
				underWay <- answered
				go func() { answered <- guarded(answer, line) }()
			}
			if err != nil {
				if err != io.EOF {
					failed = err
				}
				return
			}
		}
	}()
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	for answered := range underWay {
		if err := encoder.Encode(<-answered); err != nil {
			return err
		}
	}
	return failed
}

func guarded(answer Answer, input []byte) (result any) {
	defer func() {
		if reason := recover(); reason != nil {
			result = map[string]string{"panic": fmt.Sprint(reason)}
		}
	}()
	result, err := answer(input)
	if err != nil {
		return map[string]string{"error": err.Error()}
	}
	return result
}
