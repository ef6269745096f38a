// Package veneer asks Veneer, on behalf of Karpenter's own specs. It is copied into a copy of Karpenter (see ../build).
package veneer

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"
	corev1 "k8s.io/api/core/v1"

	v1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/scheduling"
)

// The label that Veneer knows reservations by.
const reservationID = "karpenter.k8s.aws/capacity-reservation-id"

// Type is an instance type as Veneer is told of it.
type Type struct {
	Name         string                                    `json:"name"`
	Requirements []v1.NodeSelectorRequirementWithMinValues `json:"requirements"`
	Offerings    []Offering                                `json:"offerings"`
	Capacity     corev1.ResourceList                       `json:"capacity"`
	Overhead     corev1.ResourceList                       `json:"overhead"`
}

// Offering is one of its offerings.
type Offering struct {
	Requirements        []v1.NodeSelectorRequirementWithMinValues `json:"requirements"`
	Price               float64                                   `json:"price"`
	Available           bool                                      `json:"available"`
	ReservationCapacity int                                       `json:"reservationCapacity"`
}

// Veneer runs as long as the suite does.
var program struct {
	sync.Mutex
	in  *json.Encoder
	out *bufio.Reader
}

// Ask has Veneer answer a question; both are one line of JSON.
func Ask(question, answer any) {
	program.Lock()
	defer program.Unlock()
	if ginkgo.CurrentSpecReport().LeafNodeType != types.NodeTypeInvalid {
		ginkgo.AddReportEntry("veneer was asked", ginkgo.ReportEntryVisibilityNever)
	}
	if program.in == nil {
		command := exec.Command(os.Getenv("VENEER_AGREEMENT"), "suites")
		command.Stderr = os.Stderr
		in, err := command.StdinPipe()
		Fault(err)
		out, err := command.StdoutPipe()
		Fault(err)
		Fault(command.Start())
		program.in, program.out = json.NewEncoder(in), bufio.NewReader(out)
	}
	text, err := json.Marshal(question)
	Fault(err)
	renamed := strings.ReplaceAll(string(text), cloudprovider.ReservationIDLabel, reservationID)
	Fault(program.in.Encode(json.RawMessage(renamed)))
	line, err := program.out.ReadBytes('\n')
	Fault(err)
	failed := struct {
		Error string `json:"error"`
	}{}
	Fault(json.Unmarshal(line, &failed))
	if failed.Error != "" {
		Differ("%s", failed.Error)
	}
	Fault(json.Unmarshal(line, answer))
}

// Fault ends the suite's spec where the asking itself fails.
func Fault(err error) {
	if err != nil {
		panic(fmt.Sprintf("asking Veneer: %v", err))
	}
}

// Differ fails the spec that is running.
func Differ(format string, values ...any) {
	panic("Veneer differs: " + fmt.Sprintf(format, values...))
}

// Types describes the types of all NodePools, and says to which type of which NodePool each belongs: "" for all of them.
// Where NodePools differ, a type says which one has it.
func Types(pools []string, of map[string][]*cloudprovider.InstanceType) ([]Type, []string) {
	same := len(pools) == len(of)
	for _, pool := range pools {
		same = same && slices.Equal(of[pool], of[pools[0]])
	}
	result, owners := []Type{}, []string{}
	for _, pool := range pools {
		for _, it := range of[pool] {
			described := Type{
				Name:         it.Name,
				Requirements: Expressions(it.Requirements),
				Offerings:    []Offering{},
				Capacity:     it.Capacity,
				Overhead:     it.Overhead.Total(),
			}
			owner := ""
			if !same {
				owner = pool
				described.Requirements = append(described.Requirements, v1.NodeSelectorRequirementWithMinValues{
					Key: v1.NodePoolLabelKey, Operator: corev1.NodeSelectorOpIn, Values: []string{pool}})
			}
			for _, offering := range it.Offerings {
				described.Offerings = append(described.Offerings, Offering{
					Requirements:        Expressions(offering.Requirements),
					Price:               offering.Price,
					Available:           offering.Available,
					ReservationCapacity: offering.ReservationCapacity,
				})
			}
			result = append(result, described)
			owners = append(owners, owner)
		}
		if same {
			break
		}
	}
	return result, owners
}

// Expressions are requirements in the order of their keys.
func Expressions(requirements scheduling.Requirements) []v1.NodeSelectorRequirementWithMinValues {
	keys := []string{}
	for key := range requirements {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	result := []v1.NodeSelectorRequirementWithMinValues{}
	for _, key := range keys {
		result = append(result, requirements[key].NodeSelectorRequirement())
	}
	return result
}

// Described is an object as a manifest.
func Described(kind string, object any) map[string]any {
	text, err := json.Marshal(object)
	Fault(err)
	described := map[string]any{}
	Fault(json.Unmarshal(text, &described))
	dropNulls(described)
	described["kind"] = kind
	return described
}

// dropNulls leaves out what the API server does not keep either.
func dropNulls(value any) {
	switch value := value.(type) {
	case map[string]any:
		for key, field := range value {
			switch {
			case field == nil && key == "lastTransitionTime":
				// Conditions that never were at the API server.
				value[key] = "1970-01-01T00:00:00Z"
			case field == nil:
				delete(value, key)
			}
			dropNulls(field)
		}
	case []any:
		for _, item := range value {
			dropNulls(item)
		}
	}
}
