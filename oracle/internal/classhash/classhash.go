// Package classhash asks Karpenter's AWS provider for the fingerprint of an EC2NodeClass, by which it tells that a node
// was made from an older version of its class.
package classhash

import (
	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"

	"github.com/veneer-io/veneer/oracle/internal/batch"
)

// Case is a class and the certificates that nodes are told to trust.
type Case struct {
	Class v1.EC2NodeClass `json:"class"`
	CA    *string         `json:"ca"`
}

// Answer is the fingerprint and its version.
type Answer struct {
	Hash    string `json:"hash"`
	Version string `json:"version"`
}

// Verb answers with the provider's own function.
var Verb = batch.Plain(func(in Case) (Answer, error) {
	return Answer{Hash: in.Class.Hash(in.CA), Version: v1.EC2NodeClassHashVersion}, nil
})
