// Package instancetypes writes Karpenter's instance types as plain data.
package instancetypes

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/scheduling"
)

// Type is one instance type. Amounts are thousandths, so that no notation has to be compared.
type Type struct {
	Name         string                 `json:"name"`
	Requirements map[string]Requirement `json:"requirements"`
	Capacity     map[string]int64       `json:"capacity"`
	Allocatable  map[string]int64       `json:"allocatable"`
	Offerings    []Offering             `json:"offerings"`
}

// Requirement is what a label may be.
type Requirement struct {
	Operator string   `json:"operator"`
	Values   []string `json:"values"`
}

// Offering is one way to buy the type.
type Offering struct {
	Requirements map[string]Requirement `json:"requirements"`
	Price        float64                `json:"price"`
	Available    bool                   `json:"available"`
	Reserved     int                    `json:"reserved"`
}

// Describe writes types in their order, and offerings sorted by zone and capacity type.
func Describe(types []*cloudprovider.InstanceType) []Type {
	result := make([]Type, 0, len(types))
	for _, it := range types {
		described := Type{
			Name:         it.Name,
			Requirements: requirements(it.Requirements),
			Capacity:     amounts(it.Capacity),
			Allocatable:  amounts(it.Allocatable()),
			Offerings:    []Offering{},
		}
		offerings := slices.Clone(it.Offerings)
		slices.SortStableFunc(offerings, func(a, b *cloudprovider.Offering) int {
			return strings.Compare(place(a), place(b))
		})
		for _, offering := range offerings {
			described.Offerings = append(described.Offerings, Offering{
				Requirements: requirements(offering.Requirements),
				Price:        offering.Price,
				Available:    offering.Available,
				Reserved:     offering.ReservationCapacity,
			})
		}
		result = append(result, described)
	}
	return result
}

func place(offering *cloudprovider.Offering) string {
	return offering.Zone() + "/" + offering.CapacityType()
}

func requirements(from scheduling.Requirements) map[string]Requirement {
	result := map[string]Requirement{}
	for key, requirement := range from {
		values := requirement.Values()
		slices.Sort(values)
		result[key] = Requirement{Operator: string(requirement.Operator()), Values: values}
	}
	return result
}

func amounts(list corev1.ResourceList) map[string]int64 {
	result := map[string]int64{}
	for name, quantity := range list {
		result[string(name)] = quantity.MilliValue()
	}
	return result
}
