// Command catalogue makes the instance types that Karpenter's KWOK provider launches from out of the AWS example in
// Karpenter's module: it reads that file from standard input and writes the result to standard output.
//
// The example lists every type once per operating system, and some once more as i386, under one name. The provider
// looks types up by name and takes the first, so a pool that asks for linux gets windows Nodes, which Karpenter then
// replaces for drift, forever. And it names architectures as EC2 does. What is kept here is each type once: linux,
// with the architecture as Kubernetes names it. Prices and shapes are not touched.
package main

import (
	"encoding/json"
	"log"
	"os"
	"slices"
)

type instanceType struct {
	Name             string          `json:"name"`
	Offerings        json.RawMessage `json:"offerings"`
	Architecture     string          `json:"architecture"`
	OperatingSystems []string        `json:"operatingSystems"`
	Resources        json.RawMessage `json:"resources"`
}

func main() {
	var all, kept []instanceType
	if err := json.NewDecoder(os.Stdin).Decode(&all); err != nil {
		log.Fatalf("reading instance types: %v", err)
	}
	seen := map[string]bool{}
	for _, one := range all {
		if one.Architecture == "i386" || !slices.Contains(one.OperatingSystems, "linux") {
			continue
		}
		if one.Architecture == "x86_64" {
			one.Architecture = "amd64"
		}
		if seen[one.Name] {
			log.Fatalf("instance type %s is listed twice for linux; this program has to learn which one to keep", one.Name)
		}
		seen[one.Name] = true
		kept = append(kept, one)
	}
	if err := json.NewEncoder(os.Stdout).Encode(kept); err != nil {
		log.Fatalf("writing instance types: %v", err)
	}
}
