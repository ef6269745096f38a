// Package kwoktypes asks Karpenter's KWOK provider which instance types it makes of a file.
package kwoktypes

import (
	"context"

	kwok "sigs.k8s.io/karpenter/kwok/cloudprovider"
	"sigs.k8s.io/karpenter/kwok/options"

	"github.com/veneer-io/veneer/oracle/internal/batch"
	"github.com/veneer-io/veneer/oracle/internal/instancetypes"
)

// Case names the file.
type Case struct {
	Catalogue string `json:"catalogue"`
}

// Verb answers with the list of types.
var Verb = batch.Plain(func(in Case) ([]instancetypes.Type, error) {
	ctx := options.ToContext(context.Background(), &options.Options{InstanceTypesFilePath: in.Catalogue})
	types, err := kwok.ConstructInstanceTypes(ctx)
	if err != nil {
		return nil, err
	}
	return instancetypes.Describe(types), nil
})
