package main

import (
	"os"
	"time"

	"cloud.google.com/go/spanner"
	database "cloud.google.com/go/spanner/admin/database/apiv1"
	"cloud.google.com/go/spanner/admin/database/apiv1/databasepb"
	instance "cloud.google.com/go/spanner/admin/instance/apiv1"
	"cloud.google.com/go/spanner/admin/instance/apiv1/instancepb"
	spannerapi "cloud.google.com/go/spanner/apiv1"
	sppb "cloud.google.com/go/spanner/apiv1/spannerpb"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/structpb"
)

const (
	projectName  = "projects/conformance"
	instanceName = projectName + "/instances/conformance-go"
	googleName   = instanceName + "/databases/go-google"
	postgresName = instanceName + "/databases/go-postgres"
)

var rowChecks = []check{
	{"instance_created", instanceCreated},
	{"database_created", databaseCreated},
	{"session_multiplexed", sessionMultiplexed},
}

func instanceCreated(d *databases) {
	d.instances = value(instance.NewInstanceAdminClient(d.ctx))
	d.admin = value(database.NewDatabaseAdminClient(d.ctx))
	operation := value(d.instances.CreateInstance(d.ctx, &instancepb.CreateInstanceRequest{
		Parent:     projectName,
		InstanceId: "conformance-go",
		Instance: &instancepb.Instance{
			Config:      projectName + "/instanceConfigs/emulator-config",
			DisplayName: "conformance",
			NodeCount:   1,
		},
	}))
	equal(instanceName, value(operation.Wait(d.ctx)).Name)
	listed := d.instances.ListInstances(d.ctx, &instancepb.ListInstancesRequest{Parent: projectName})
	for {
		if value(listed.Next()).Name == instanceName {
			return
		}
	}
}

func databaseCreated(d *databases) {
	operation := value(d.admin.CreateDatabase(d.ctx, &databasepb.CreateDatabaseRequest{
		Parent:          instanceName,
		CreateStatement: "CREATE DATABASE `go-google`",
		ExtraStatements: statements("google.sql"),
	}))
	value(operation.Wait(d.ctx))
	found := value(d.admin.GetDatabase(d.ctx, &databasepb.GetDatabaseRequest{Name: googleName}))
	equal(databasepb.Database_READY, found.State)
	d.google = value(spanner.NewClient(d.ctx, googleName))
}

func changeDDL(d *databases, name string, ddl ...string) {
	request := &databasepb.UpdateDatabaseDdlRequest{Database: name, Statements: ddl}
	must(value(d.admin.UpdateDatabaseDdl(d.ctx, request)).Wait(d.ctx))
}

func sessionMultiplexed(d *databases) {
	api := value(spannerapi.NewClient(d.ctx,
		option.WithEndpoint(os.Getenv("SPANNER_EMULATOR_HOST")), option.WithoutAuthentication(),
		option.WithGRPCDialOption(grpc.WithTransportCredentials(insecure.NewCredentials()))))
	defer api.Close()
	session := value(api.CreateSession(d.ctx, &sppb.CreateSessionRequest{
		Database: googleName, Session: &sppb.Session{Multiplexed: true},
	}))
	equal(true, session.Multiplexed)
	insert := &sppb.Mutation{Operation: &sppb.Mutation_Insert{Insert: &sppb.Mutation_Write{
		Table:   "Counters",
		Columns: []string{"Name", "Value"},
		Values:  []*structpb.ListValue{value(structpb.NewList([]any{"multiplexed", "1"}))},
	}}}
	begun := value(api.BeginTransaction(d.ctx, &sppb.BeginTransactionRequest{
		Session: session.Name,
		Options: &sppb.TransactionOptions{
			Mode: &sppb.TransactionOptions_ReadWrite_{ReadWrite: &sppb.TransactionOptions_ReadWrite{}},
		},
		MutationKey: insert,
	}))
	answer := value(api.Commit(d.ctx, &sppb.CommitRequest{
		Session:        session.Name,
		Transaction:    &sppb.CommitRequest_TransactionId{TransactionId: begun.Id},
		Mutations:      []*sppb.Mutation{insert},
		PrecommitToken: begun.PrecommitToken,
	}))
	equal(true, answer.CommitTimestamp != nil)
}

func apply(d *databases, all ...*spanner.Mutation) time.Time {
	return value(d.google.Apply(d.ctx, all))
}
